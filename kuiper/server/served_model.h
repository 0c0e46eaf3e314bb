// The server's description of its model, and the preparation of bodies for the engine: templates
// and tokenizing. Any thread may prepare requests: only the answer memory changes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kuiper/chat/conversation.h"
#include "kuiper/chat/picture_reader.h"
#include "kuiper/chat/tool_calls.h"
#include "kuiper/engine/engine.h"
#include "kuiper/server/answer_memory.h"
#include "kuiper/server/api_error.h"
#include "kuiper/server/api_request.h"
#include "kuiper/server/picture_work.h"

namespace kuiper {

struct ServedModel {
  std::vector<std::string> names;  // responses contain the first one
  std::string fingerprint;
  int64_t created = 0;
  const Tokenizer* tokenizer = nullptr;
  TemplateOptions chat;                        // without the images of a request
  std::optional<PictureReader> pictures = {};  // has read none; absent for text models
  Request defaults;                            // for fields that bodies leave out
  int max_output_tokens = 0;                   // 0: up to the end of the context
  int max_context = 0;
  int max_choices = 0;  // per body
  EngineConfig config;
  std::string device;

  bool Has(const std::string& name) const;
  std::optional<ToolCallFormat> tool_format() const;
  // Returns the template options for the prompt of a body. They point to `pictures`.
  TemplateOptions OptionsOf(const ParsedMessages& messages) const;
};

struct PreparedRequest {
  ApiRequest api;                 // without the messages, which the prompts contain
  std::vector<Request> requests;  // their images are measured, not decoded
  int num_image_tokens = 0;       // sum over all prompts
  PictureCost pictures = {};
  std::vector<std::string> echoes;  // texts of the prompts; only for completions with `echo`
  // The ids of the answer to verify. If set, the last request runs without pages.
  std::optional<std::vector<int32_t>> verified;
  uint64_t history = 0;  // key of the conversation in the answer memory; chats only
};

using PreparedOr = std::variant<PreparedRequest, ApiError>;

// `memory` may be null.
PreparedOr Prepare(const ServedModel& model, AnswerMemory* memory, JsonNode body, bool is_chat);

// Returns the requests for the engine. `prepared` keeps copies without the images.
std::vector<Request> TakeRequests(PreparedRequest* prepared);

// Return the prompt for a body's messages: as text, and as ids including the image placeholders.
StatusOr<std::vector<Segment>> RenderBody(const ServedModel& model, const ParsedMessages& messages);
StatusOr<std::vector<int32_t>> EncodeBody(const ServedModel& model, ParsedMessages messages);

}  // namespace kuiper
