// Parses bodies of OpenAI's chat/completions and completions. Unsupported features are errors, and
// unknown fields must ask for nothing (foreign_fields.h), so that an answer never silently differs
// from the request. Independent of HTTP and files.
#pragma once

#include <string>
#include <string_view>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"
#include "kuiper/io/messages_json.h"

namespace kuiper {

struct ChatRequest {
  bool is_chat = true;           // true for chat/completions, false for completions
  ParsedMessages messages = {};  // chats only
  std::string text = {};         // completions only; unused if request.prompt has tokens
  bool adds_bos = true;          // completions only: see EncodeRaw
  Request request = {};
};

// `defaults` holds the values of absent fields. kInput; its messages name fields by Param.
StatusOr<ChatRequest> ParseChatRequest(const JsonNode& body, bool is_chat, const Request& defaults);

// True if the body has a value for the parameter, under its name or another server's name.
bool GivesParameter(const JsonNode& body, std::string_view parameter);

// Returns the value of `key`; nullptr if it is absent or null.
const JsonNode* GivenField(const JsonNode& node, const char* key);

}  // namespace kuiper
