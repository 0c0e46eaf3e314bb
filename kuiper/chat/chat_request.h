// The bodies of OpenAI's chat/completions and completions -> what to generate. A field that nobody
// knows must ask for nothing (foreign_fields.h), and a request for something that is not done is an
// error: an answer never silently differs from what was asked for. Knows neither HTTP nor files.
#pragma once

#include <string>
#include <string_view>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"
#include "kuiper/io/messages_json.h"

namespace kuiper {

struct ChatRequest {
  bool is_chat = true;           // chat/completions, else completions
  ParsedMessages messages = {};  // of a chat
  std::string text = {};         // of a completion, unless request.prompt has its tokens
  bool adds_bos = true;          // of a completion: see EncodeRaw
  Request request = {};
};

// `defaults` holds what a body leaves out. kInput; messages name fields by Param.
StatusOr<ChatRequest> ParseChatRequest(const JsonNode& body, bool is_chat, const Request& defaults);

// Whether the body has a value for a parameter, under its name or one that other servers use.
bool GivesParameter(const JsonNode& body, std::string_view parameter);

// The value of `key`, nullptr when it is absent or null.
const JsonNode* GivenField(const JsonNode& node, const char* key);

}  // namespace kuiper
