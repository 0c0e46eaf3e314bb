#include "kuiper/engine/text_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace kuiper {
namespace {

std::vector<float> RandomRow(int vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> logit(0.f, 4.f);
  std::vector<float> row(vocab);
  for (float& x : row) x = logit(random);
  return row;
}

// Without subtracting the largest logit, in long double.
long double NaiveLogprob(const std::vector<float>& row, int next) {
  long double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<long double>(x));
  return row[next] - std::log(sum);
}

TEST(TextScore, ARowIsTheLogSoftmax) {
  for (const int vocab : {1, 2, 17, 257, 5000}) {
    const std::vector<float> row = RandomRow(vocab, vocab);
    const auto score = ScoreRow(row, vocab / 2);
    ASSERT_TRUE(score.has_value());
    EXPECT_NEAR(score->logprob, static_cast<double>(NaiveLogprob(row, vocab / 2)), 1e-12) << vocab;
    for (const float x : row) EXPECT_LE(x, row[score->best]);
  }
}

TEST(TextScore, LargeLogitsStayFinite) {
  const auto score = ScoreRow(std::vector<float>{3e38f, -3e38f, 3e38f}, 2);
  ASSERT_TRUE(score.has_value());
  EXPECT_EQ(score->best, 0) << "of equal logits the lowest id";
  EXPECT_NEAR(score->logprob, 0.0, 1e-3);
}

TEST(TextScore, ARowThatIsNotFiniteHasNoScore) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::nanf("")}) {
    EXPECT_FALSE(ScoreRow(std::vector<float>{1.f, bad, 2.f}, 0).has_value());
    EXPECT_FALSE(ScoreRow(std::vector<float>{bad}, 0).has_value());
  }
}

TEST(TextScore, DivergenceIsThatOfTheDefinition) {
  const std::vector<float> p = RandomRow(300, 1), q = RandomRow(300, 2);
  long double naive = 0;
  for (int i = 0; i < 300; ++i) {
    const long double logprob = NaiveLogprob(p, i);
    naive += std::exp(logprob) * (logprob - NaiveLogprob(q, i));
  }
  const auto a = ScoreRow(p, 0), b = ScoreRow(q, 0);
  EXPECT_NEAR(Divergence(p, *a, q, *b), static_cast<double>(naive), 1e-12);
  EXPECT_EQ(Divergence(p, *a, p, *a), 0.0);
}

// Every token is scored once, in the first window with a token before it.
TEST(TextScore, WindowsPredictEachTokenOnce) {
  for (const int size : {2, 3, 7, 16}) {
    for (int stride = 1; stride <= size; ++stride) {
      for (const int n : {2, size - 1, size, size + 1, 3 * size, 3 * size + 1}) {
        std::vector<int> count(n, 0);
        int64_t end = 0;
        for (const TextWindow& w : PlanWindows(n, size, stride)) {
          EXPECT_LE(w.end - w.begin, size);
          EXPECT_EQ(w.begin % stride, 0);
          EXPECT_GT(w.first_scored, w.begin);
          for (int64_t i = w.first_scored; i < w.end; ++i) ++count[i];
          end = w.end;
        }
        const bool last_is_alone = n == 1 || (stride == size && n % size == 1);
        EXPECT_EQ(end, n - last_is_alone);
        for (int i = 0; i < n; ++i) {
          const bool predicted = i > 0 && (stride < size || i % size != 0);
          EXPECT_EQ(count[i], predicted) << size << " " << stride << " " << n << " " << i;
        }
      }
    }
  }
  EXPECT_TRUE(PlanWindows(1, 4, 2).empty());
  EXPECT_TRUE(PlanWindows(0, 4, 2).empty());
}

TEST(TextScore, SumsAreMeansAndTheirErrors) {
  TextScore text;
  EXPECT_TRUE(std::isnan(text.nats_per_token()));
  for (const double x : {1.0, 2.0, 6.0}) text.Add(-x);
  EXPECT_DOUBLE_EQ(text.nats_per_token(), 3.0);
  EXPECT_DOUBLE_EQ(text.perplexity(), std::exp(3.0));
  EXPECT_DOUBLE_EQ(text.nats_error(), std::sqrt((4.0 + 1.0 + 9.0) / 2 / 3));
  EXPECT_DOUBLE_EQ(text.perplexity_error(), text.perplexity() * text.nats_error());
  TextScore both = text;
  both.Add(text);
  EXPECT_EQ(both.count, 6);
  EXPECT_DOUBLE_EQ(both.nats_per_token(), 3.0);

  ScoreComparison comparison;
  EXPECT_TRUE(std::isnan(comparison.mean_change()));
  comparison.Add({.logprob = -1, .best = 3}, {.logprob = -1.5, .best = 3}, 0.25);
  comparison.Add({.logprob = -2, .best = 3}, {.logprob = -1, .best = 4}, 0.5);
  EXPECT_DOUBLE_EQ(comparison.share_of_same_best(), 0.5);
  EXPECT_DOUBLE_EQ(comparison.mean_change(), 0.75);
  EXPECT_DOUBLE_EQ(comparison.largest_change, 1.0);
  EXPECT_DOUBLE_EQ(comparison.mean_divergence(), 0.375);
  ScoreComparison all;
  all.Add(comparison);
  all.Add({.count = 2, .same_best = 2});
  EXPECT_DOUBLE_EQ(all.share_of_same_best(), 0.75);
  EXPECT_DOUBLE_EQ(all.largest_change, 1.0);
  EXPECT_DOUBLE_EQ(all.mean_divergence(), 0.1875);
}

}  // namespace
}  // namespace kuiper
