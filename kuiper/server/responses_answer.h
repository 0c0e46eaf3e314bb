// Writes responses in the format of OpenAI's Responses API: lists of items (reasoning, a message,
// tool calls).
#pragma once

#include <memory>

#include "kuiper/server/answer_writer.h"

namespace kuiper {

// `prepared` and `tokenizer` must outlive the writer.
std::unique_ptr<AnswerWriter> MakeResponsesWriter(const PreparedRequest& prepared,
                                                  AnswerTitle title, const Tokenizer& tokenizer,
                                                  ReasoningField reasoning_field);

}  // namespace kuiper
