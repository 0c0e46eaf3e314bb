// Compares linear layers on every device with double-precision loops. Also tests the guarantee of
// Apply that a row's bits do not depend on the other rows, and the epilogues. The CPU kernels have
// their own tests as well (linear_test.cpp).
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
  const std::unique_ptr<Ops> ops_ = MakeTestOps(device());
  const DType activation_ = ops_->ActivationType(dtype());

  // Returns y [tokens, n] f32 for x [tokens, k], whose rows have gaps of `gap` elements.
  std::vector<float> Run(const Matrix& weight, const std::vector<float>& x, int tokens, int n,
                         int k, int gap = 0) {
    const Matrix mx(*ops_, activation_, tokens, k, x, k + gap);
    const Matrix out(*ops_, DType::kF32, tokens, n, n + 3);
    Linear w;
    w.in = k;
    w.out = n;
    w.num_parts = 1;
    w.parts[0].weight = DenseWeight(weight.tensor());
    ops_->Run(ApplyArgs{.out = out.tensor(), .x = mx.tensor(), .linear = w});
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
    const std::vector<float> w = Rounded(RandomFloats(size_t{1} * s.n * s.k, 2), dtype());
    const Matrix mw(*ops_, dtype(), s.n, s.k, w);
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
    const Matrix w(*ops_, dtype(), n, k, RandomFloats(size_t{1} * n * k, 3));
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

// Wide layers divide each row among fewer warps, so they have their own order of summation.
TEST_P(ApplyTest, WideLayers) {
  struct Size {
    int k, tokens;
  };
  // Rows that can and that cannot be read in vectors, with every number of tokens that has its own
  // kernel.
  const Size sizes[] = {{24, 3}, {8, 1}, {8, 2}, {8, 12}, {8, 20}, {8, 33}, {5, 3}, {5, 9}};
  for (int n : {16400, 65552}) {
    for (const auto& [k, tokens] : sizes) {
      const std::vector<float> w = Rounded(RandomFloats(size_t{1} * n * k, 5), dtype());
      const std::vector<float> x = ExactFloats(size_t{1} * tokens * k, 6);
      const Matrix mw(*ops_, dtype(), n, k, w);
      const std::vector<float> y = Run(mw, x, tokens, n, k);
      std::vector<double> expected;
      for (int t = 0; t < tokens; ++t) {
        for (int r = 0; r < n; ++r) {
          double sum = 0;
          for (int i = 0; i < k; ++i) sum += double{x[t * k + i]} * w[r * k + i];
          expected.push_back(sum);
        }
      }
      ExpectNear(y, expected, 1e-5, 1e-5,
                 "N=" + std::to_string(n) + " T=" + std::to_string(tokens));
    }
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
    weights.emplace_back(*ops_, dtype(), rows[i], kK, RandomFloats(rows[i] * kK, 10 + i));
    const DType bias_type = i == 0 ? DType::kF32 : dtype();
    bias_values.push_back(Rounded(RandomFloats(rows[i], 20 + i), bias_type));
    biases.emplace_back(*ops_, bias_type, 1, rows[i], bias_values.back());
  }
  for (int i = 0; i < 3; ++i) {
    w.parts[i].weight = DenseWeight(weights[i].tensor());
    if (i != 1) w.parts[i].bias = biases[i].vector();
    w.out += rows[i];
  }
  w.num_parts = 3;
  const Matrix mx(*ops_, activation_, kTokens, kK, x);
  const Matrix out(*ops_, DType::kF32, kTokens, w.out, w.out + 1);
  ops_->Run(ApplyArgs{.out = out.tensor(), .x = mx.tensor(), .linear = w});
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

// The output type only rounds the same sums.
TEST_P(ApplyTest, OutputsRoundToTheirType) {
  constexpr int kN = 40, kK = 72, kTokens = 6;
  const Matrix weight(*ops_, dtype(), kN, kK, RandomFloats(kN * kK, 8));
  const std::vector<float> x = ExactFloats(kTokens * kK, 9);
  const std::vector<float> exact = Run(weight, x, kTokens, kN, kK);
  Linear w;
  w.in = kK;
  w.out = kN;
  w.num_parts = 1;
  w.parts[0].weight = DenseWeight(weight.tensor());
  const Matrix mx(*ops_, activation_, kTokens, kK, x);
  const Matrix out(*ops_, activation_, kTokens, kN);
  ops_->Run(ApplyArgs{.out = out.tensor(), .x = mx.tensor(), .linear = w});
  EXPECT_TRUE(SameBits(out.Get(), Rounded(exact, activation_)));
}

// Two parts of `half` rows with a bias each, like gate and up.
struct GateUp {
  Matrix gate, up, gate_bias, up_bias;
  Linear w;

  GateUp(Ops& ops, DType type, int half, int k)
      : gate(ops, type, half, k, RandomFloats(half * k, 31)),
        up(ops, type, half, k, RandomFloats(half * k, 32)),
        gate_bias(ops, type, 1, half, RandomFloats(half, 33)),
        up_bias(ops, DType::kF32, 1, half, RandomFloats(half, 34)) {
    w.in = k;
    w.out = 2 * half;
    w.num_parts = 2;
    w.parts[0] = {DenseWeight(gate.tensor()), gate_bias.vector()};
    w.parts[1] = {DenseWeight(up.tensor()), up_bias.vector()};
  }
};

// (outputs per part, K, T): smaller and larger than a tile of rows, a work item of the CPU, a token
// panel.
constexpr int kEpilogueSizes[][3] = {{1, 8, 1},    {7, 40, 3},   {130, 64, 5},
                                     {600, 72, 2}, {37, 136, 6}, {65, 264, 25},
                                     {96, 24, 70}, {50, 96, 21}, {70, 64, 64}};

TEST_P(ApplyTest, AddGrowsTheOutputByTheSums) {
  for (const auto& [half, k, tokens] : kEpilogueSizes) {
    const GateUp layer(*ops_, dtype(), half, k);
    const Matrix x(*ops_, activation_, tokens, k, RandomFloats(tokens * k, 35));
    const Matrix sums(*ops_, DType::kF32, tokens, 2 * half);
    ops_->Run(ApplyArgs{.out = sums.tensor(), .x = x.tensor(), .linear = layer.w});
    const std::vector<float> before = RandomFloats(tokens * 2 * half, 36);
    const Matrix out(*ops_, DType::kF32, tokens, 2 * half, before, 2 * half + 5);
    ops_->Run(ApplyArgs{
        .out = out.tensor(), .x = x.tensor(), .linear = layer.w, .epilogue = Epilogue::kAdd});
    std::vector<float> expected = sums.Get();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    EXPECT_TRUE(SameBits(out.Get(), expected)) << "N=" << half << " T=" << tokens;
  }
}

TEST_P(ApplyTest, SwiGluMultipliesTheSums) {
  for (const auto& [half, k, tokens] : kEpilogueSizes) {
    const GateUp layer(*ops_, dtype(), half, k);
    const Matrix x(*ops_, activation_, tokens, k, RandomFloats(tokens * k, 37));
    const Matrix sums(*ops_, DType::kF32, tokens, 2 * half);
    ops_->Run(ApplyArgs{.out = sums.tensor(), .x = x.tensor(), .linear = layer.w});
    const Matrix out(*ops_, DType::kF32, tokens, half, half + 5);
    ops_->Run(ApplyArgs{
        .out = out.tensor(), .x = x.tensor(), .linear = layer.w, .epilogue = Epilogue::kSwiGlu});
    const std::vector<float> y = sums.Get();
    std::vector<double> expected;
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < half; ++i) {
        const double gate = y[t * 2 * half + i], up = y[t * 2 * half + half + i];
        expected.push_back(gate / (1.0 + std::exp(-gate)) * up);
      }
    }
    ExpectNear(out.Get(), expected, 1e-6, 2e-6,
               "N=" + std::to_string(half) + " T=" + std::to_string(tokens));
  }
}

// With K = 1 and a weight of one, gate and up can be anything: 0, large, NaN. FP16 saturates.
TEST_P(ApplyTest, SwiGluSurvivesExtremesAndKeepsNaN) {
  const float large = dtype() == DType::kF16 ? 60000.0f : 1e30f;
  const std::vector<float> gates = {0.0f, -0.0f, 100.0f, -100.0f, large, -large, kNaN, 1.0f};
  const std::vector<float> ups = {3.0f, 1.0f, 2.0f, 2.0f, 5.0f, 5.0f, 1.0f, kNaN};
  const int n = static_cast<int>(gates.size());
  const Matrix gate(*ops_, dtype(), n, 1, gates), up(*ops_, dtype(), n, 1, ups);
  Linear w;
  w.in = 1;
  w.out = 2 * n;
  w.num_parts = 2;
  w.parts[0].weight = DenseWeight(gate.tensor());
  w.parts[1].weight = DenseWeight(up.tensor());
  const Matrix x(*ops_, activation_, 1, 1, std::vector<float>{1.0f}), out(*ops_, activation_, 1, n);
  ops_->Run(
      ApplyArgs{.out = out.tensor(), .x = x.tensor(), .linear = w, .epilogue = Epilogue::kSwiGlu});
  const std::vector<float> y = out.Get();
  for (int i = 0; i < n; ++i) {
    if (std::isnan(gates[i]) || std::isnan(ups[i])) {
      EXPECT_TRUE(std::isnan(y[i])) << i;
    } else {
      const double sigmoid = 1.0 / (1.0 + std::exp(-double{Rounded(gates[i], dtype())}));
      double expected = Rounded(gates[i], dtype()) * sigmoid * ups[i];
      if (activation_ == DType::kF16) expected = std::clamp(expected, -65504.0, 65504.0);
      EXPECT_NEAR(y[i], expected, 1e-6 + 0.005 * std::abs(expected)) << i;
    }
  }
}

}  // namespace
}  // namespace kuiper::test
