// Prefill rows in Apply, on devices that may use another order of summation than for decode rows:
// compares with double-precision loops, and tests what their bits depend on.
#include <algorithm>
#include <cmath>

#include "apply_test_util.h"
#include "kuiper/kernels/cuda/row_check.h"

namespace kuiper::test {
namespace {

// A linear layer of up to three parts, with the values of its weights and biases.
struct Layer {
  std::vector<Matrix> weights, biases;
  std::vector<std::vector<float>> weight_values, bias_values;
  Linear w;

  Layer(Ops& ops, DType type, int k, const std::vector<int>& rows, bool with_bias) {
    w.in = k;
    w.num_parts = static_cast<int>(rows.size());
    for (int i = 0; i < w.num_parts; ++i) {
      weight_values.push_back(Rounded(RandomFloats(size_t{1} * rows[i] * k, 10 + i), type));
      weights.emplace_back(ops, type, rows[i], k, weight_values.back());
      bias_values.push_back(with_bias ? Rounded(RandomFloats(rows[i], 20 + i), type)
                                      : std::vector<float>(rows[i], 0.0f));
      biases.emplace_back(ops, type, 1, rows[i], bias_values.back());
      w.out += rows[i];
    }
    for (int i = 0; i < w.num_parts; ++i) {
      w.parts[i].weight = DenseWeight(weights[i].tensor());
      if (with_bias) w.parts[i].bias = biases[i].vector();
    }
  }

  // x W^T + b, [tokens, w.out].
  std::vector<double> Sums(const std::vector<float>& x, int tokens) const {
    std::vector<double> sums;
    for (int t = 0; t < tokens; ++t) {
      for (int part = 0; part < w.num_parts; ++part) {
        for (size_t r = 0; r < bias_values[part].size(); ++r) {
          double sum = bias_values[part][r];
          for (int i = 0; i < w.in; ++i) {
            sum += double{x[t * w.in + i]} * weight_values[part][r * w.in + i];
          }
          sums.push_back(sum);
        }
      }
    }
    return sums;
  }
};

class DenseApplyTest : public TypedOpsTest {
 protected:
  std::unique_ptr<Ops> Make(Determinism determinism) const {
    return MakeTestOps(device(), {.determinism = determinism});
  }
  // Runs a prepared layer on x and returns [tokens, columns]; the output was `before`.
  static std::vector<float> Run(Ops& ops, const Layer& layer, const std::vector<float>& x,
                                Epilogue epilogue, int num_decode_rows, DType out_type,
                                const std::vector<float>& before = {}) {
    return RunPrepared(ops, layer.w, x,
                       {.epilogue = epilogue,
                        .num_decode_rows = num_decode_rows,
                        .out_type = out_type,
                        .before = before});
  }
};
KU_INSTANTIATE_TYPED_OPS_TEST(DenseApplyTest);

// Aligned rows and rows that no library supports, one part and several, more rows than a panel of
// sums.
struct LayerSize {
  std::vector<int> rows;
  int k, tokens;
};
const LayerSize kSizes[] = {{{64}, 72, 9},         {{48, 16, 24}, 136, 33}, {{17, 40, 5}, 64, 20},
                            {{33, 33}, 129, 7},    {{40, 40}, 264, 65},     {{8, 8}, 16, 1},
                            {{1024, 1024}, 8, 300}};

TEST_P(DenseApplyTest, PromptRowsMatchNaive) {
  const auto ops = Make(Determinism::kOn);
  for (const LayerSize& s : kSizes) {
    for (const bool with_bias : {false, true}) {
      const Layer layer(*ops, dtype(), s.k, s.rows, with_bias);
      const std::vector<float> x = Rounded(RandomFloats(size_t{1} * s.tokens * s.k, 1), dtype());
      const std::vector<double> sums = layer.Sums(x, s.tokens);
      const std::string what = "N=" + std::to_string(layer.w.out) + " K=" + std::to_string(s.k);
      const double error = 1e-6 * s.k;
      ExpectNear(Run(*ops, layer, x, Epilogue::kStore, 0, DType::kF32), sums, error, 1e-5, what);

      const std::vector<float> before = RandomFloats(sums.size(), 2);
      std::vector<double> added = sums;
      for (size_t i = 0; i < added.size(); ++i) added[i] += before[i];
      ExpectNear(Run(*ops, layer, x, Epilogue::kAdd, 0, DType::kF32, before), added, error, 1e-5,
                 what + " add");

      if (s.rows.size() != 2) continue;
      std::vector<double> products;
      const int half = s.rows[0];
      for (int t = 0; t < s.tokens; ++t) {
        for (int i = 0; i < half; ++i) {
          const double gate = sums[t * 2 * half + i], up = sums[t * 2 * half + half + i];
          products.push_back(gate / (1.0 + std::exp(-gate)) * up);
        }
      }
      ExpectNear(Run(*ops, layer, x, Epilogue::kSwiGlu, 0, DType::kF32), products, 20 * error, 1e-4,
                 what + " SwiGLU");
    }
  }
}

// Decode rows have the same bits as alone; prefill rows have the same bits as in any other batch.
TEST_P(DenseApplyTest, RowsDependOnTheirKindNotOnTheirNeighbours) {
  constexpr int kK = 136, kTokens = 70;
  const auto ops = Make(Determinism::kOn);
  const Layer layer(*ops, dtype(), kK, {40, 40}, true);
  const std::vector<float> x = RandomFloats(kTokens * kK, 3);
  const DType out_type = ops->ActivationType(dtype());
  for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kSwiGlu}) {
    const auto run = [&](int first, int tokens, int decodes) {
      return Run(*ops, layer, {x.begin() + first * kK, x.begin() + (first + tokens) * kK}, epilogue,
                 decodes, out_type);
    };
    const int columns = OutputColumns(layer.w, epilogue);
    const std::vector<float> prompt = run(0, kTokens, 0),
                             decode = run(0, kTokens, ApplyArgs::kAllRows);
    for (const auto& [first, tokens, decodes] :
         {std::array{3, 1, 0}, std::array{9, 17, 0}, std::array{0, 65, 1}, std::array{5, 33, 20},
          std::array{60, 8, 8}}) {
      const std::vector<float> rows = run(first, tokens, decodes);
      const auto middle = rows.begin() + decodes * columns;
      EXPECT_TRUE(std::equal(rows.begin(), middle, decode.begin() + first * columns)) << first;
      EXPECT_TRUE(std::equal(middle, rows.end(), prompt.begin() + (first + decodes) * columns))
          << first;
    }
  }
}

// The emulated device always has a separate product for prefill rows. Otherwise the tests above
// would compare a kernel with itself.
TEST_P(DenseApplyTest, OnlyStrictGivesPromptRowsTheBitsOfDecodeRows) {
  constexpr int kK = 1032, kTokens = 5;
  const std::vector<float> x = RandomFloats(kTokens * kK, 4);
  for (const Determinism determinism :
       {Determinism::kStrict, Determinism::kOn, Determinism::kOff}) {
    const auto ops = Make(determinism);
    const Layer layer(*ops, dtype(), kK, {40}, false);
    const bool same =
        SameBits(Run(*ops, layer, x, Epilogue::kStore, 0, DType::kF32),
                 Run(*ops, layer, x, Epilogue::kStore, ApplyArgs::kAllRows, DType::kF32));
    if (determinism == Determinism::kStrict || device().type == DeviceType::kCPU) {
      EXPECT_TRUE(same);
    } else if (device().type == DeviceType::kSimt) {
      EXPECT_FALSE(same);
    }
  }
}

TEST(RowCheckTest, RefusesProductsWhoseRowsSeeTheirNumberOrPlace) {
  constexpr int kMaxRows = 300;
  // Row i has two bytes: its own value, and seen(i, count) as its product.
  const auto passes = [](auto seen) {
    return RowsKeepTheirBits(kMaxRows, 2, [&](int first, int count) {
      std::vector<char> rows;
      for (int i = 0; i < count; ++i) {
        rows.push_back(static_cast<char>((first + i) % 100));
        rows.push_back(static_cast<char>(seen(i, count)));
      }
      return rows;
    });
  };
  EXPECT_TRUE(passes([](int, int) { return 0; }));
  EXPECT_FALSE(passes([](int, int count) { return count > 64; }));
  EXPECT_FALSE(passes([](int, int count) { return count == 1; }));
  EXPECT_FALSE(passes([](int, int count) { return count == kMaxRows; }));
  EXPECT_FALSE(passes([](int i, int) { return i == 3; })) << "the place of the row";
}

}  // namespace
}  // namespace kuiper::test
