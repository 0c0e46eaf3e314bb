#include "kuiper/engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace kuiper {

TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int count) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - max);
  const double log_sum = max + std::log(sum);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  TokenLogprobs result;
  result.chosen = static_cast<float>(logits[token] - log_sum);
  for (int i = 0; i < count; ++i) {
    result.top.emplace_back(order[i], static_cast<float>(logits[order[i]] - log_sum));
  }
  return result;
}

}  // namespace kuiper
