#include "kuiper/engine/text_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kuiper/base/check.h"

namespace kuiper {
namespace {

double Mean(double sum, int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::vector<TextWindow> PlanWindows(int64_t num_tokens, int size, int stride) {
  KU_CHECK(size >= 2 && stride >= 1 && stride <= size);
  std::vector<TextWindow> windows;
  int64_t scored_end = 0;
  for (int64_t begin = 0; scored_end < num_tokens; begin += stride) {
    const int64_t end = std::min(begin + size, num_tokens);
    const TextWindow window{begin, end, std::max(scored_end, begin + 1)};
    if (window.num_scored() > 0) windows.push_back(window);
    scored_end = end;
  }
  return windows;
}

std::optional<RowScore> ScoreRow(std::span<const float> logits, int32_t next) {
  KU_CHECK(next >= 0 && static_cast<size_t>(next) < logits.size());
  RowScore score;
  bool finite = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    finite = finite && std::isfinite(logits[i]);
    if (logits[i] > logits[score.best]) score.best = static_cast<int32_t>(i);
  }
  if (!finite) return std::nullopt;
  const double largest = logits[score.best];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  score.log_sum = largest + std::log(sum);
  score.logprob = logits[next] - score.log_sum;
  return score;
}

double Divergence(std::span<const float> reference, const RowScore& of_reference,
                  std::span<const float> other, const RowScore& of_other) {
  KU_CHECK(reference.size() == other.size());
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double logprob = reference[i] - of_reference.log_sum;
    sum += std::exp(logprob) * (logprob - (other[i] - of_other.log_sum));
  }
  return std::max(sum, 0.0);  // negative sums are rounding errors
}

void TextScore::Add(double logprob) {
  ++count;
  sum -= logprob;
  sum_of_squares += logprob * logprob;
}

void TextScore::Add(const TextScore& more) {
  count += more.count;
  sum += more.sum;
  sum_of_squares += more.sum_of_squares;
}

double TextScore::nats_per_token() const {
  return Mean(sum, count);
}

double TextScore::perplexity() const {
  return std::exp(nats_per_token());
}

double TextScore::nats_error() const {
  const double mean = nats_per_token();
  const double variance = Mean(sum_of_squares - mean * sum, count - 1);
  return std::sqrt(std::max(variance, 0.0) / static_cast<double>(count));
}

double TextScore::perplexity_error() const {
  return perplexity() * nats_error();
}

void ScoreComparison::Add(const RowScore& reference, const RowScore& other, double divergence) {
  const double change = std::abs(other.logprob - reference.logprob);
  ++count;
  same_best += other.best == reference.best;
  sum_of_changes += change;
  largest_change = std::max(largest_change, change);
  sum_of_divergence += divergence;
}

void ScoreComparison::Add(const ScoreComparison& more) {
  count += more.count;
  same_best += more.same_best;
  sum_of_changes += more.sum_of_changes;
  largest_change = std::max(largest_change, more.largest_change);
  sum_of_divergence += more.sum_of_divergence;
}

double ScoreComparison::share_of_same_best() const {
  return Mean(static_cast<double>(same_best), count);
}

double ScoreComparison::mean_change() const {
  return Mean(sum_of_changes, count);
}

double ScoreComparison::mean_divergence() const {
  return Mean(sum_of_divergence, count);
}

}  // namespace kuiper
