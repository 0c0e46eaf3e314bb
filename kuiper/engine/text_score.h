// Measures how well a model predicts a text, and how far two runs differ: the windows to compute,
// the score of a row of logits, and sums over rows. Pure functions of logits, for kuiper eval;
// independent of the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kuiper {

// Tokens [begin, end) of a text are computed together. Each token of [first_scored, end) is
// predicted from the tokens between `begin` and itself.
struct TextWindow {
  int64_t begin = 0, end = 0, first_scored = 0;

  int num_scored() const { return static_cast<int>(end - first_scored); }
};

// Returns windows of `size` tokens that begin every `stride` tokens, as in Hugging Face's guide to
// the perplexity of fixed-length models. Each token is predicted in the first window that contains
// it and a token before it. If `stride` equals `size`, the first token of each window is not
// predicted. 1 <= stride <= size, size >= 2.
std::vector<TextWindow> PlanWindows(int64_t num_tokens, int size, int stride);

// The score of a row of logits [vocab] for the next token of the text.
struct RowScore {
  double logprob = 0;  // natural logarithm of the softmax at that token
  double log_sum = 0;  // logarithm of the sum of the exponentials of the logits
  int32_t best = 0;    // id of the largest logit; for ties the lowest id, as in the sampler
};

// Computed in double from FP32 logits. Absent if a logit is not finite. 0 <= next < vocab.
std::optional<RowScore> ScoreRow(std::span<const float> logits, int32_t next);

// The Kullback-Leibler divergence of `other` from `reference`, in nats: the mean of log(reference /
// other) over the reference's probabilities. Both rows must be scored and have the same length.
double Divergence(std::span<const float> reference, const RowScore& of_reference,
                  std::span<const float> other, const RowScore& of_other);

// Sums of the scores of a text.
struct TextScore {
  int64_t count = 0;
  double sum = 0, sum_of_squares = 0;  // negative log probabilities, in nats

  void Add(double logprob);
  void Add(const TextScore& more);
  // Means are NaN without tokens; standard errors are NaN for fewer than two.
  double nats_per_token() const;
  double perplexity() const;
  // Standard errors under the assumption that the tokens' scores are independent.
  double nats_error() const;
  double perplexity_error() const;
};

// Row by row comparison with a reference.
struct ScoreComparison {
  int64_t count = 0;
  int64_t same_best = 0;
  double sum_of_changes = 0, largest_change = 0;  // |log p - log p of the reference|
  double sum_of_divergence = 0;

  void Add(const RowScore& reference, const RowScore& other, double divergence);
  void Add(const ScoreComparison& more);
  // All NaN without rows.
  double share_of_same_best() const;
  double mean_change() const;
  double mean_divergence() const;
};

}  // namespace kuiper
