// How well a model predicts a text, and how far two ways of running it are apart: the windows in
// which the tokens are computed, the score of a row of logits, and sums over rows. Pure functions
// of logits; called by kuiper eval, knows no engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kuiper {

// The tokens [begin, end) of a text are computed together, and those of [first_scored, end) are
// predicted: each from the tokens between `begin` and itself.
struct TextWindow {
  int64_t begin = 0, end = 0, first_scored = 0;

  int num_scored() const { return static_cast<int>(end - first_scored); }
};

// Windows of `size` tokens that begin every `stride` tokens, as Hugging Face's documentation
// computes the perplexity of models with a fixed length: each token is predicted in the first
// window that has it and a token before it. With a stride of `size` the first token of each window
// is predicted nowhere. 1 <= stride <= size, size >= 2.
std::vector<TextWindow> PlanWindows(int64_t num_tokens, int size, int stride);

// A row of logits [vocab] and the token that follows in the text.
struct RowScore {
  double logprob = 0;  // natural logarithm of the softmax at that token
  double log_sum = 0;  // logarithm of the sum of the exponentials of the logits
  int32_t best = 0;    // the largest logit; of equal ones the lowest id, as the sampler takes
};

// In double from FP32 logits. Absent when a logit is not finite. 0 <= next < vocab.
std::optional<RowScore> ScoreRow(std::span<const float> logits, int32_t next);

// The Kullback-Leibler divergence of `other` from `reference`, in nats: the mean over the
// reference's probabilities of how much likelier it finds a token. Both rows have been scored and
// have one length.
double Divergence(std::span<const float> reference, const RowScore& of_reference,
                  std::span<const float> other, const RowScore& of_other);

// The scores of a text.
struct TextScore {
  int64_t count = 0;
  double sum = 0, sum_of_squares = 0;  // of the negative log probabilities, in nats

  void Add(double logprob);
  void Add(const TextScore& more);
  // NaN without tokens; the error of a mean is NaN below two.
  double nats_per_token() const;
  double perplexity() const;
  // Standard errors if the tokens' scores were independent.
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
  // NaN without rows.
  double share_of_same_best() const;
  double mean_change() const;
  double mean_divergence() const;
};

}  // namespace kuiper
