// POST /kuiper/verify: an answer runs again twice, as the server answers and without pages, and its
// ids and the bits of all logits are compared. The body is that of the answer, with its ids.
#pragma once

#include <memory>

#include "kuiper/server/answer_writer.h"

namespace kuiper {

// `memory` may be null. The prepared requests are the run with pages and the one without.
PreparedOr PrepareVerification(const ServedModel& model, AnswerMemory* memory, JsonNode body);

// {"object": "kuiper.verification", "identical", "message", ...}
std::unique_ptr<AnswerWriter> MakeVerificationWriter(const PreparedRequest& prepared,
                                                     AnswerTitle title, const Tokenizer& tokenizer,
                                                     ReasoningField reasoning_field);

}  // namespace kuiper
