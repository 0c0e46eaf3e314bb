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
// Biases and penalises the log probabilities of these ids. For beam search, where Hugging Face
// applies its logits processors behind the log softmax and does not normalise again: a repeated
// id's (negative) log probability is multiplied by the repetition penalty.
void AddBiases(std::span<const TokenBias> biases, std::vector<float>* logprobs);
void Penalise(const SamplingParams& params, std::span<const TokenCount> counts,
              std::vector<float>* logprobs);

// Of `token` and of the `count` most likely ids.
TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int count);

}  // namespace kuiper
