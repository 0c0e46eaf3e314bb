// Linear layers with quantised weights on every device, with each compute type. Compares with
// double-precision loops over (code - zero) * scale and checks each code by itself. Also tests the
// guarantee of Apply that a row's bits do not depend on the other rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "apply_test_util.h"
#include "quantized_matrix.h"

namespace kuiper::test {
namespace {

using Kind = WeightFormat::Kind;
constexpr Kind kKinds[] = {Kind::kInt4, Kind::kInt8, Kind::kE4M3};
constexpr int kWholeRow = 1 << 30;

// A layer of several parts with the numbers that they store; `offset` as in QuantizedOnDevice.
struct Layer {
  std::vector<QuantizedNumbers> numbers;
  std::vector<std::unique_ptr<QuantizedOnDevice>> matrices;
  std::vector<std::vector<float>> bias_values;
  std::vector<Matrix> biases;
  Linear w;

  Layer(Ops& ops, std::vector<QuantizedNumbers> parts, bool with_bias = false, int offset = 0)
      : numbers(std::move(parts)) {
    w.in = numbers[0].columns;
    w.num_parts = static_cast<int>(numbers.size());
    for (int i = 0; i < w.num_parts; ++i) {
      const int rows = numbers[i].rows;
      matrices.push_back(std::make_unique<QuantizedOnDevice>(ops, numbers[i], offset));
      bias_values.push_back(with_bias ? RandomFloats(rows, 20 + i) : std::vector<float>(rows));
      biases.emplace_back(ops, DType::kF32, 1, rows, bias_values.back());
      w.out += rows;
    }
    for (int i = 0; i < w.num_parts; ++i) {
      w.parts[i].weight = matrices[i]->matrix();
      if (with_bias) w.parts[i].bias = biases[i].vector();
    }
  }

  // x W^T + b, [tokens, w.out].
  std::vector<double> Sums(const std::vector<float>& x) const {
    std::vector<double> sums;
    const int tokens = static_cast<int>(x.size()) / w.in;
    std::vector<std::vector<double>> rows;
    for (const QuantizedNumbers& n : numbers) {
      for (int r = 0; r < n.rows; ++r) {
        rows.emplace_back();
        for (int i = 0; i < w.in; ++i) rows.back().push_back(n.Value(r, i));
      }
    }
    std::vector<double> bias;
    for (const auto& values : bias_values) bias.insert(bias.end(), values.begin(), values.end());
    for (int t = 0; t < tokens; ++t) {
      for (size_t r = 0; r < rows.size(); ++r) {
        double sum = bias[r];
        for (int i = 0; i < w.in; ++i) sum += rows[r][i] * x[t * w.in + i];
        sums.push_back(sum);
      }
    }
    return sums;
  }
};

// Multiples of 1/16 up to 4, which every float type holds.
std::vector<float> ExactFloats(size_t n, uint32_t seed) {
  std::vector<float> values = RandomFloats(n, seed);
  for (float& x : values) x = std::round(std::clamp(x, -4.0f, 4.0f) * 16.0f) / 16.0f;
  return values;
}

std::string NameOf(const QuantizedNumbers& n) {
  constexpr const char* kNames[] = {"", "", "", "INT4", "INT8", "E4M3"};
  return std::string(kNames[static_cast<int>(n.format.kind)]) + " N=" + std::to_string(n.rows) +
         " K=" + std::to_string(n.columns) +
         " group=" + std::to_string(std::min(n.format.group_columns, n.columns)) +
         (n.zeros.empty() ? "" : " with zeros");
}

class QuantizedApplyTest : public TypedOpsTest {
 protected:
  DType factors() const { return dtype(); }
  std::unique_ptr<Ops> Make(Determinism determinism) const {
    OpsOptions options;
    options.determinism = determinism;
    std::unique_ptr<Ops> ops = MakeTestOps(device(), options);
    OpsLimits limits = TestLimits();
    limits.quantized = true;
    limits.max_features = 4192;
    KU_CHECK(ops->Reserve(limits).ok());
    return ops;
  }
  const std::unique_ptr<Ops> ops_ = Make(Determinism::kStrict);
  const DType activation_ = ops_->ActivationType(factors());

  // Rows of x have gaps of `gap` elements; y is [tokens, columns] f32, before it is added to.
  static std::vector<float> Run(Ops& ops, const Layer& layer, const std::vector<float>& x,
                                Epilogue epilogue = Epilogue::kStore, int gap = 0,
                                int num_decode_rows = ApplyArgs::kAllRows,
                                const std::vector<float>& before = {}) {
    return RunPrepared(
        ops, layer.w, x,
        {.epilogue = epilogue, .num_decode_rows = num_decode_rows, .gap = gap, .before = before});
  }
};
KU_INSTANTIATE_TYPED_OPS_TEST(QuantizedApplyTest);

// Each token selects one column: the output is the weight itself. Covers every index in an
// iteration of the kernel's loop and in the remainder after it.
TEST_P(QuantizedApplyTest, EveryCodeMinusEveryZeroIsExact) {
  constexpr int kColumns = 288;
  for (const Kind kind : kKinds) {
    for (const int group : {32, 128}) {
      QuantizedNumbers n{Quantized(kind, factors(), group), 16, kColumns, {}, {}, {}};
      const int64_t groups = n.format.column_groups(kColumns);
      for (int r = 0; r < n.rows; ++r) {
        for (int i = 0; i < kColumns; ++i) {
          // INT4: each row, with its zero point, has all codes. INT8 and FP8: the rows of a zero
          // point have all codes together.
          const int code = kind == Kind::kInt4 ? (i + r) % 16 : (i + 73 * r) % 256;
          const bool is_nan = kind == Kind::kE4M3 && (code & 127) == 127;
          n.codes.push_back(static_cast<uint8_t>(is_nan ? 0 : code));
        }
        for (int64_t i = 0; i < groups; ++i) {
          constexpr uint8_t kZeros[] = {0, 1, 127, 128, 129, 200, 254, 255};
          n.zeros.push_back(kind == Kind::kInt4 ? static_cast<uint8_t>(r) : kZeros[r % 8]);
        }
      }
      if (kind == Kind::kE4M3) n.zeros.clear();
      for (int64_t i = 0; i < n.rows * groups; ++i) n.scales.push_back(i % 3 == 0 ? 0.5f : 2.0f);
      const Layer layer(*ops_, {n});
      for (const int tokens : {8, 72}) {
        for (int first = 0; first < kColumns; first += tokens) {
          std::vector<float> x(tokens * kColumns);
          for (int t = 0; t < tokens; ++t) x[t * kColumns + first + t] = 1.0f;
          const std::vector<float> y = Run(*ops_, layer, x);
          for (int i = 0; i < tokens * n.rows; ++i) {
            ASSERT_EQ(y[i], n.Value(i % n.rows, first + i / n.rows))
                << NameOf(n) << " row " << i % n.rows << " column " << first + i / n.rows;
          }
        }
      }
    }
  }
}

struct Size {
  int rows, columns, tokens, group;
  DType scale_type;
  bool zeros;
  int gap, offset, group_rows;
};
// Fewer and more columns than a block, one iteration, and the iterations of each number of warps.
// Each number of tokens around those with their own kernels. Rows and codes at odd addresses.
const Size kSizes[] = {
    {1, 32, 1, 32, DType::kF16, true, 0, 0, 1},
    {17, 64, 2, 64, DType::kBF16, false, 0, 0, 1},
    {40, 96, 7, 32, DType::kF32, true, 0, 0, 1},
    {33, 160, 8, 128, DType::kF16, false, 0, 0, 1},
    {16, 288, 9, 256, DType::kF16, true, 0, 0, 1},
    {130, 256, 3, kWholeRow, DType::kBF16, false, 0, 0, 1},
    {200, 384, 64, 128, DType::kF32, false, 0, 0, 128},
    {24, 544, 65, 64, DType::kF16, true, 0, 0, 1},
    {48, 1056, 20, kWholeRow, DType::kF32, true, 8, 0, 1},
    {20, 2080, 1, 128, DType::kF16, true, 0, 0, 1},
    {9, 4192, 5, 32, DType::kBF16, true, 0, 0, 1},
    {19, 288, 10, 64, DType::kF16, true, 1, 0, 1},
    {19, 288, 3, 128, DType::kF16, true, 0, 3, 1},
};

TEST_P(QuantizedApplyTest, MatchesNaive) {
  for (const Kind kind : kKinds) {
    for (const Size& s : kSizes) {
      const WeightFormat format = Quantized(kind, factors(), s.group, s.scale_type, s.group_rows);
      const bool zeros = s.zeros && kind != Kind::kE4M3;
      const Layer layer(*ops_, {RandomQuantized(format, s.rows, s.columns, zeros, 1)},
                        /*with_bias=*/false, s.offset);
      const std::vector<float> x = ExactFloats(size_t{1} * s.tokens * s.columns, 2);
      ExpectNear(Run(*ops_, layer, x, Epilogue::kStore, s.gap), layer.Sums(x), 2e-6 * s.columns,
                 1e-5, NameOf(layer.numbers[0]) + " T=" + std::to_string(s.tokens));
    }
  }
}

TEST_P(QuantizedApplyTest, RowsDoNotSeeTheirNeighbours) {
  constexpr int kTokens = 70, kColumns = 1120;
  for (const Kind kind : kKinds) {
    const WeightFormat format = Quantized(kind, factors(), 128);
    const Layer layer(*ops_, {RandomQuantized(format, 40, kColumns, kind != Kind::kE4M3, 3)});
    const std::vector<float> x = RandomFloats(kTokens * kColumns, 4);
    const std::vector<float> all = Run(*ops_, layer, x);
    for (const int tokens : {1, 2, 7, 8, 9, 17, 64, 65}) {
      const int first = tokens * 7 % (kTokens - tokens + 1);
      const std::vector<float> some = Run(
          *ops_, layer, {x.begin() + first * kColumns, x.begin() + (first + tokens) * kColumns});
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * 40))
          << NameOf(layer.numbers[0]) << " T=" << tokens;
    }
  }
}

// Parts with a bias, all epilogues; gate and up.
std::vector<double> SwiGlu(const std::vector<double>& sums, int half) {
  std::vector<double> products;
  for (size_t row = 0; row < sums.size(); row += size_t{2} * half) {
    for (int i = 0; i < half; ++i) {
      const double gate = sums[row + i], up = sums[row + half + i];
      products.push_back(gate / (1.0 + std::exp(-gate)) * up);
    }
  }
  return products;
}

// Decode rows are exact; prefill rows are within the rounding error of a weight's compute type.
TEST_P(QuantizedApplyTest, PartsBiasesAndEpilogues) {
  constexpr int kColumns = 160;
  const auto prompts = Make(Determinism::kOn);
  for (const Kind kind : kKinds) {
    const WeightFormat format = Quantized(kind, factors(), 64);
    for (const std::vector<int>& rows : {std::vector{48, 16, 24}, std::vector{40, 40}}) {
      for (const bool with_bias : {false, true}) {
        std::vector<QuantizedNumbers> parts;
        for (const int n : rows) {
          const bool zeros = kind != Kind::kE4M3 && parts.size() != 1;
          parts.push_back(
              RandomQuantized(format, n, kColumns, zeros, 5 + static_cast<uint32_t>(n)));
        }
        for (const int tokens : {1, 9, 33}) {
          const std::vector<float> x = ExactFloats(tokens * kColumns, 6);
          for (const bool is_prompt : {false, true}) {
            Ops& ops = is_prompt ? *prompts : *ops_;
            const Layer layer(ops, parts, with_bias);
            const std::vector<double> sums = layer.Sums(x);
            const int decodes = is_prompt ? 0 : tokens;
            const double abs = 4e-4 + (is_prompt ? 60 * RoundingError(factors()) : 0);
            const std::string what = NameOf(parts[0]) + (is_prompt ? " prompt" : " decode");
            ExpectNear(Run(ops, layer, x, Epilogue::kStore, 0, decodes), sums, abs, 1e-5, what);
            const std::vector<float> before = RandomFloats(sums.size(), 7);
            std::vector<double> added = sums;
            for (size_t i = 0; i < added.size(); ++i) added[i] += before[i];
            ExpectNear(Run(ops, layer, x, Epilogue::kAdd, 0, decodes, before), added, abs, 1e-5,
                       what + " add");
            if (rows.size() != 2) continue;
            ExpectNear(Run(ops, layer, x, Epilogue::kSwiGlu, 0, decodes), SwiGlu(sums, rows[0]),
                       40 * abs, 1e-4, what + " SwiGLU");
          }
        }
      }
    }
  }
}

// Rows of a layer whose weights are dequantised one panel at a time, in scratch memory for few
// rows.
TEST_P(QuantizedApplyTest, PromptRowsPassThroughPanels) {
  constexpr int kColumns = 160, kTokens = 19;
  OpsLimits limits;
  limits.max_tokens = 32;
  limits.max_seqs = 4;
  limits.max_context = 64;
  limits.vocab = 64;
  limits.max_features = kColumns;
  limits.quantized = true;
  auto made = MakeOps(device(), {.num_threads = 2});
  ASSERT_TRUE(made.ok());
  const std::unique_ptr<Ops> ops = std::move(made).value();
  ASSERT_TRUE(ops->Reserve(limits).ok());
  for (const Kind kind : kKinds) {
    const int group_rows = kind == Kind::kE4M3 ? 128 : 1;
    const WeightFormat format = Quantized(kind, factors(), 32, DType::kBF16, group_rows);
    const Layer layer(*ops,
                      {RandomQuantized(format, 1000, kColumns, kind == Kind::kInt8, 8),
                       RandomQuantized(format, 1000, kColumns, kind == Kind::kInt4, 9)},
                      /*with_bias=*/true);
    const std::vector<float> x = ExactFloats(kTokens * kColumns, 10);
    const std::vector<double> sums = layer.Sums(x);
    const double abs = 4e-4 + 60 * RoundingError(factors());
    ExpectNear(Run(*ops, layer, x, Epilogue::kStore, 0, 2), sums, abs, 1e-5, "store");
    ExpectNear(Run(*ops, layer, x, Epilogue::kSwiGlu, 0, 2), SwiGlu(sums, 1000), 40 * abs, 1e-4,
               "SwiGLU");
  }
}

// Decode rows have the same bits as alone; prefill rows have the same bits as in any other batch.
// On the emulated device, which has a separate product for prefill rows, the two differ unless
// strict.
TEST_P(QuantizedApplyTest, RowsDependOnTheirKind) {
  constexpr int kColumns = 1056, kTokens = 40, kRows = 40;
  const auto prompts = Make(Determinism::kOn);
  const bool emulated = device().type == DeviceType::kSimt;
  for (const Kind kind : kKinds) {
    const WeightFormat format = Quantized(kind, factors(), 128);
    const QuantizedNumbers numbers = RandomQuantized(format, kRows, kColumns, false, 11);
    const Layer layer(*prompts, {numbers}), strict_layer(*ops_, {numbers});
    const std::vector<float> x = RandomFloats(kTokens * kColumns, 12);
    const auto run = [&](int first, int tokens, int decodes) {
      return Run(*prompts, layer,
                 {x.begin() + first * kColumns, x.begin() + (first + tokens) * kColumns},
                 Epilogue::kStore, 0, decodes);
    };
    const std::vector<float> prompt = run(0, kTokens, 0), decode = run(0, kTokens, kTokens);
    EXPECT_TRUE(!emulated || prompt != decode);
    EXPECT_TRUE(SameBits(decode, Run(*ops_, strict_layer, x)));
    EXPECT_TRUE(SameBits(decode, Run(*ops_, strict_layer, x, Epilogue::kStore, 0, 0)));
    for (const auto& [first, tokens, decodes] :
         {std::array{3, 1, 0}, std::array{9, 17, 0}, std::array{0, 33, 1}, std::array{5, 33, 20}}) {
      const std::vector<float> rows = run(first, tokens, decodes);
      const auto middle = rows.begin() + decodes * kRows;
      EXPECT_TRUE(std::equal(rows.begin(), middle, decode.begin() + first * kRows)) << first;
      EXPECT_TRUE(std::equal(middle, rows.end(), prompt.begin() + (first + decodes) * kRows))
          << first;
    }
  }
}

}  // namespace
}  // namespace kuiper::test
