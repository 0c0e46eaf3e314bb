// OpenAI's newer form, POST /v1/responses, without anything that is kept between requests: a body
// becomes that of a chat, and the answer is written as a list of items.
#pragma once

#include <memory>

#include "kuiper/server/answer_writer.h"

namespace kuiper {

// kInput names fields by Param; kUnavailable for what needs a store.
StatusOr<JsonNode> ChatOfResponses(JsonNode body);

std::unique_ptr<AnswerWriter> MakeResponsesWriter(const PreparedRequest& prepared,
                                                  AnswerTitle title, const Tokenizer& tokenizer,
                                                  ReasoningField reasoning_field);

}  // namespace kuiper
