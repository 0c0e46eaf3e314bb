// Anthropic's API format, POST /v1/messages: converts its bodies to chat bodies and writes
// responses as content blocks.
#pragma once

#include <memory>

#include "kuiper/server/answer_writer.h"

namespace kuiper {

// kInput names fields by Param.
StatusOr<JsonNode> ChatOfMessages(JsonNode body);

// {"type": "error", "error": {"type", "message"}}
nlohmann::ordered_json MessagesError(const ApiError& error);

std::unique_ptr<AnswerWriter> MakeMessagesWriter(const PreparedRequest& prepared, AnswerTitle title,
                                                 const Tokenizer& tokenizer,
                                                 ReasoningField reasoning_field);

}  // namespace kuiper
