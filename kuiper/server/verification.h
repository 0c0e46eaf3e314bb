// POST /kuiper/verify: generates an answer again twice, with the paged KV cache and without pages.
// Compares the ids, and the logits bit by bit. The body is the original request plus the ids.
#pragma once

#include <memory>

#include "kuiper/server/answer_writer.h"

namespace kuiper {

// `memory` may be null. Prepares two requests: the paged run, then the one without pages.
PreparedOr PrepareVerification(const ServedModel& model, AnswerMemory* memory, JsonNode body);

// {"object": "kuiper.verification", "identical", "message", ...}
std::unique_ptr<AnswerWriter> MakeVerificationWriter(const PreparedRequest& prepared,
                                                     AnswerTitle title, const Tokenizer& tokenizer,
                                                     ReasoningField reasoning_field);

}  // namespace kuiper
