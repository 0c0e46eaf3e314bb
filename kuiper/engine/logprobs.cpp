#include "kuiper/engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kuiper {

std::vector<float> LogSoftmax(std::span<const float> logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - max);
  const double log_sum = max + std::log(sum);
  std::vector<float> logprobs;
  logprobs.reserve(logits.size());
  for (float x : logits) logprobs.push_back(static_cast<float>(x - log_sum));
  return logprobs;
}

std::vector<std::pair<int32_t, float>> MostLikely(std::span<const float> values, int count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  std::vector<std::pair<int32_t, float>> top;
  top.reserve(count);
  for (int i = 0; i < count; ++i) top.emplace_back(order[i], values[order[i]]);
  return top;
}

void AddBiases(std::span<const TokenBias> biases, std::vector<float>* logprobs) {
  for (const TokenBias& b : biases) logprobs->at(b.token) += b.bias;
}

void Penalise(const SamplingParams& params, std::span<const TokenCount> counts,
              std::vector<float>* logprobs) {
  for (const TokenCount& c : counts) {
    float& x = logprobs->at(c.token);
    x *= params.repetition_penalty;
    x -= params.frequency_penalty * static_cast<float>(c.count);
    if (c.count > 0) x -= params.presence_penalty;
  }
}

TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int count) {
  const std::vector<float> logprobs = LogSoftmax(logits);
  const auto at_least = [&](float x) { return x >= logits[token]; };
  const auto rank = std::count_if(logits.begin(), logits.end(), at_least);
  return {logprobs[token], static_cast<int>(rank), MostLikely(logprobs, count)};
}

}  // namespace kuiper
