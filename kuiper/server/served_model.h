// What a server knows of its model, and what becomes of a body before the engine sees it: templates
// and tokenizing. Changes nothing but the answer memory, so that any thread may prepare requests.
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
  std::vector<std::string> names;  // the first one is in the answers
  std::string fingerprint;
  int64_t created = 0;
  const Tokenizer* tokenizer = nullptr;
  TemplateOptions chat;                        // without pictures
  std::optional<PictureReader> pictures = {};  // that has read none; absent: the model sees nothing
  Request defaults;                            // of bodies
  int max_output_tokens = 0;                   // 0: as many as the context takes
  int max_context = 0;
  int max_choices = 0;  // of one body
  EngineConfig config;
  std::string device;

  bool Has(const std::string& name) const;
  std::optional<ToolCallForm> tool_form() const;
  // Those of a body's prompt. They point to `pictures`.
  TemplateOptions OptionsOf(const ParsedMessages& messages) const;
};

struct PreparedRequest {
  ApiRequest api;                 // its messages are gone, they are in the prompts
  std::vector<Request> requests;  // their pictures are measured, not decoded
  int num_image_tokens = 0;       // of all prompts
  PictureCost pictures = {};
  std::vector<std::string> echoes;  // of completions that echo: the prompts' texts
  // The ids of an answer that is verified: the second request runs without pages.
  std::optional<std::vector<int32_t>> verified;
  uint64_t history = 0;  // key of the conversation in the answer memory; chats only
};

using PreparedOr = std::variant<PreparedRequest, ApiError>;

// `memory` may be null.
PreparedOr Prepare(const ServedModel& model, AnswerMemory* memory, JsonNode body, bool is_chat);

// The requests for the engine; those that are kept have no pictures.
std::vector<Request> TakeRequests(PreparedRequest* prepared);

// The prompt of a body with messages, without an answer: as text, and as ids with those of
// pictures.
StatusOr<std::vector<Segment>> RenderBody(const ServedModel& model, const ParsedMessages& messages);
StatusOr<std::vector<int32_t>> EncodeBody(const ServedModel& model, ParsedMessages messages);

}  // namespace kuiper
