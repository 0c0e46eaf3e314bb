// Log probabilities of one row of logits, on the host.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kuiper/engine/step_plan.h"

namespace kuiper {

// log softmax of logits [vocab], which are finite or -inf.
std::vector<float> LogSoftmax(std::span<const float> logits);
// The `count` (at most vocab) largest of values [vocab], largest first; ties go to the lowest id.
std::vector<std::pair<int32_t, float>> MostLikely(std::span<const float> values, int count);
// Adds biases or penalties to the log probabilities of these ids. For beam search, where Hugging
// Face applies its logits processors after the log softmax and does not normalise again. So the
// repetition penalty multiplies a repeated id's (negative) log probability.
void AddBiases(std::span<const TokenBias> biases, std::vector<float>* logprobs);
void Penalise(const SamplingParams& params, std::span<const TokenCount> counts,
              std::vector<float>* logprobs);

// Log probability and rank of `token`, and the `count` most likely ids.
TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int count);

}  // namespace kuiper
