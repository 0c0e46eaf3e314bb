// Linear layers on every device against double-precision loops, and the promise of Ops::Apply: a
// row's bits do not depend on the other rows. The CPU kernels have their own tests as well
// (linear_test.cpp).
#include <algorithm>
#include <cmath>

#include "ops_test_util.h"

namespace kuiper::test {
namespace {

// Multiples of 1/32 up to 4, which every float type holds.
std::vector<float> ExactFloats(size_t n, uint32_t seed) {
  std::vector<float> values = RandomFloats(n, seed);
  for (float& x : values) x = std::round(std::clamp(x, -4.0f, 4.0f) * 32.0f) / 32.0f;
  return values;
}

class ApplyTest : public TypedOpsTest {
 protected:
  DType type() const { return std::get<1>(GetParam()); }
  const std::unique_ptr<Ops> ops_ = MakeTestOps(std::get<0>(GetParam()));
  const DType activation_ = ops_->ActivationType(type());

  // y [tokens, n] f32 of x [tokens, k], rows of x `gap` elements apart.
  std::vector<float> Run(const Matrix& weight, const std::vector<float>& x, int tokens, int n,
                         int k, int gap = 0) {
    const Matrix mx(*ops_, activation_, tokens, k, x, k + gap);
    const Matrix out(*ops_, DType::kF32, tokens, n, n + 3);
    Linear w;
    w.in = k;
    w.out = n;
    w.num_parts = 1;
    w.parts[0].weight = weight.tensor();
    ops_->Apply(out.tensor(), mx.tensor(), w);
    return out.Get();
  }
};
KU_INSTANTIATE_TYPED_OPS_TEST(ApplyTest);

TEST_P(ApplyTest, MatchesNaive) {
  struct Size {
    int n, k, tokens, gap;
  };
  const Size sizes[] = {{1, 1, 1, 0},     {7, 5, 3, 1},      {16, 8, 1, 0},    {17, 40, 2, 0},
                        {33, 129, 9, 7},  {96, 56, 8, 8},    {70, 1000, 5, 0}, {130, 257, 20, 0},
                        {64, 512, 65, 8}, {48, 136, 130, 0}, {5, 4096, 33, 0}};
  for (const Size& s : sizes) {
    const std::vector<float> x = ExactFloats(size_t{1} * s.tokens * s.k, 1);
    const std::vector<float> w = Rounded(RandomFloats(size_t{1} * s.n * s.k, 2), type());
    const Matrix mw(*ops_, type(), s.n, s.k, w);
    const std::vector<float> y = Run(mw, x, s.tokens, s.n, s.k, s.gap);
    std::vector<double> expected;
    for (int t = 0; t < s.tokens; ++t) {
      for (int r = 0; r < s.n; ++r) {
        double sum = 0;
        for (int i = 0; i < s.k; ++i) sum += double{x[t * s.k + i]} * w[r * s.k + i];
        expected.push_back(sum);
      }
    }
    ExpectNear(y, expected, 1e-6 * s.k, 1e-5,
               "N=" + std::to_string(s.n) + " K=" + std::to_string(s.k));
  }
}

TEST_P(ApplyTest, RowsDoNotSeeTheirNeighbours) {
  constexpr int kTokens = 70;
  for (const auto& [n, k] : {std::pair{20, 264}, std::pair{40, 1032}, std::pair{9, 77}}) {
    const Matrix w(*ops_, type(), n, k, RandomFloats(size_t{1} * n * k, 3));
    const std::vector<float> x = RandomFloats(kTokens * k, 4);
    const std::vector<float> all = Run(w, x, kTokens, n, k);
    for (int tokens : {1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65}) {
      const int first = tokens * 7 % (kTokens - tokens + 1);
      const std::vector<float> some =
          Run(w, {x.begin() + first * k, x.begin() + (first + tokens) * k}, tokens, n, k);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * n))
          << "T=" << tokens << " N=" << n << " K=" << k;
    }
  }
}

// Wide layers share their rows among fewer warps; the order of summation is theirs alone.
TEST_P(ApplyTest, WideLayers) {
  for (int n : {16400, 65552}) {
    constexpr int kK = 24;
    const std::vector<float> w = Rounded(RandomFloats(size_t{1} * n * kK, 5), type());
    const std::vector<float> x = ExactFloats(3 * kK, 6);
    const Matrix mw(*ops_, type(), n, kK, w);
    const std::vector<float> y = Run(mw, x, 3, n, kK);
    std::vector<double> expected;
    for (int t = 0; t < 3; ++t) {
      for (int r = 0; r < n; ++r) {
        double sum = 0;
        for (int i = 0; i < kK; ++i) sum += double{x[t * kK + i]} * w[r * kK + i];
        expected.push_back(sum);
      }
    }
    ExpectNear(y, expected, 1e-5, 1e-5);
  }
}

TEST_P(ApplyTest, PartsLieSideBySideAndGetTheirBias) {
  constexpr int kK = 64, kTokens = 11;
  const int rows[] = {48, 17, 5};
  const std::vector<float> x = ExactFloats(kTokens * kK, 7);
  std::vector<Matrix> weights, biases;
  std::vector<std::vector<float>> bias_values;
  Linear w;
  w.in = kK;
  for (int i = 0; i < 3; ++i) {
    weights.emplace_back(*ops_, type(), rows[i], kK, RandomFloats(rows[i] * kK, 10 + i));
    const DType bias_type = i == 0 ? DType::kF32 : type();
    bias_values.push_back(Rounded(RandomFloats(rows[i], 20 + i), bias_type));
    biases.emplace_back(*ops_, bias_type, 1, rows[i], bias_values.back());
  }
  for (int i = 0; i < 3; ++i) {
    w.parts[i].weight = weights[i].tensor();
    if (i != 1) w.parts[i].bias = biases[i].vector();
    w.out += rows[i];
  }
  w.num_parts = 3;
  const Matrix mx(*ops_, activation_, kTokens, kK, x);
  const Matrix out(*ops_, DType::kF32, kTokens, w.out, w.out + 1);
  ops_->Apply(out.tensor(), mx.tensor(), w);
  const std::vector<float> y = out.Get();
  int column = 0;
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> alone = Run(weights[i], x, kTokens, rows[i], kK);
    for (int t = 0; t < kTokens; ++t) {
      for (int r = 0; r < rows[i]; ++r) {
        const float bias = i == 1 ? 0.0f : bias_values[i][r];
        ASSERT_EQ(y[t * w.out + column + r], alone[t * rows[i] + r] + bias) << "part " << i;
      }
    }
    column += rows[i];
  }
}

// The type of the output rounds the same sums.
TEST_P(ApplyTest, OutputsRoundToTheirType) {
  constexpr int kN = 40, kK = 72, kTokens = 6;
  const Matrix weight(*ops_, type(), kN, kK, RandomFloats(kN * kK, 8));
  const std::vector<float> x = ExactFloats(kTokens * kK, 9);
  const std::vector<float> exact = Run(weight, x, kTokens, kN, kK);
  Linear w;
  w.in = kK;
  w.out = kN;
  w.num_parts = 1;
  w.parts[0].weight = weight.tensor();
  const Matrix mx(*ops_, activation_, kTokens, kK, x);
  const Matrix out(*ops_, activation_, kTokens, kN);
  ops_->Apply(out.tensor(), mx.tensor(), w);
  EXPECT_TRUE(SameBits(out.Get(), Rounded(exact, activation_)));
}

}  // namespace
}  // namespace kuiper::test
