// Writes responses in OpenAI's chat/completions and completions formats.
#pragma once

#include <memory>

#include "kuiper/server/answer_writer.h"

namespace kuiper {

// `prepared` and `tokenizer` must outlive the writer.
std::unique_ptr<AnswerWriter> MakeOpenAiWriter(const PreparedRequest& prepared, AnswerTitle title,
                                               const Tokenizer& tokenizer,
                                               ReasoningField reasoning_field);

}  // namespace kuiper
