// Compares the CPU linear layer on quantised weights with a plain sum in double precision, and with
// the numeric contract of linear/kernel.h, written out one lane at a time.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "kuiper/base/half.h"
#include "linear_test_util.h"

namespace kuiper::cpu {
namespace {

using Kind = WeightFormat::Kind;

// E4M3 as the OCP specification has it: bias 7, no infinity, S.1111.111 is NaN.
float FloatOfE4M3(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if (exponent == 15 && fraction == 7) return NAN;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                   : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return code & 128 ? -size : size;
}

struct Shape {
  Kind kind = Kind::kInt4;
  int group_columns = 128;
  int group_rows = 1;
  DType scale_type = DType::kF16;
  bool has_zeros = false;
};

std::string NameOf(const Shape& s) {
  constexpr const char* kNames[] = {"INT4", "INT8", "E4M3"};
  return std::string(kNames[static_cast<int>(s.kind) - 3]) + " groups of " +
         std::to_string(s.group_columns) + "x" + std::to_string(s.group_rows) + " " +
         DTypeName(s.scale_type) + (s.has_zeros ? " zeros" : "");
}

const Shape kShapes[] = {
    {},
    {.group_columns = 32, .has_zeros = true},
    {.group_columns = 64, .scale_type = DType::kBF16},
    {.group_columns = 1 << 20, .scale_type = DType::kF32, .has_zeros = true},
    {.kind = Kind::kInt8, .scale_type = DType::kBF16},
    {.kind = Kind::kInt8, .group_columns = 32, .has_zeros = true},
    {.kind = Kind::kInt8, .group_columns = 256, .scale_type = DType::kF32},
    {.kind = Kind::kE4M3, .group_rows = 128, .scale_type = DType::kBF16},
    {.kind = Kind::kE4M3, .group_columns = 64, .scale_type = DType::kF32},
};

// Random codes, scales and zero points, `offset` bytes after an aligned address.
struct Weights {
  Shape shape;
  int n, k, groups;
  std::vector<uint8_t> bytes, zeros;
  std::vector<float> scales;  // values of the scale type
  std::vector<uint8_t> scale_bytes;
  size_t offset;

  Weights(const Shape& s, int n, int k, uint32_t seed, size_t offset = 0)
      : shape(s), n(n), k(k), groups((k + s.group_columns - 1) / s.group_columns), offset(offset) {
    std::mt19937 rng(seed);
    bytes.resize(offset + static_cast<size_t>(n) * k * bits() / 8);
    for (uint8_t& byte : bytes) {
      byte = static_cast<uint8_t>(rng() >> 8);
      if (s.kind == Kind::kE4M3 && (byte & 127) == 127) byte = 1;  // no NaN
    }
    if (s.has_zeros) {
      zeros.resize(static_cast<size_t>(n) * groups);
      for (uint8_t& zero : zeros) zero = static_cast<uint8_t>(rng() >> 8) >> (8 - bits());
    }
    const int rows = (n + s.group_rows - 1) / s.group_rows;
    for (int i = 0; i < rows * groups; ++i) Add(0.02f + 0.01f * Random(rng, 1.0f));
  }

  int bits() const { return shape.kind == Kind::kInt4 ? 4 : 8; }
  void Add(float scale) {
    const uint16_t half =
        shape.scale_type == DType::kF16 ? ToHalf(scale).bits : ToBFloat16(scale).bits;
    const void* from = shape.scale_type == DType::kF32 ? static_cast<const void*>(&scale) : &half;
    scale_bytes.resize(scale_bytes.size() + DTypeBytes(shape.scale_type));
    memcpy(&scale_bytes[scale_bytes.size() - DTypeBytes(shape.scale_type)], from,
           DTypeBytes(shape.scale_type));
    scales.push_back(shape.scale_type == DType::kF32   ? scale
                     : shape.scale_type == DType::kF16 ? ToFloat(Half{half})
                                                       : ToFloat(BFloat16{half}));
  }
  int Code(int row, int col) const {
    const size_t at = static_cast<size_t>(row) * k + col;
    if (bits() == 8) return bytes[offset + at];
    return bytes[offset + at / 2] >> (col % 2 * 4) & 15;
  }
  float Factor(int row, int col) const {
    const int code = Code(row, col);
    if (shape.kind == Kind::kE4M3) return FloatOfE4M3(code);
    const int zero =
        zeros.empty() ? 1 << (bits() - 1) : zeros[row * groups + col / shape.group_columns];
    return static_cast<float>(code - zero);
  }
  float Scale(int row, int col) const {
    return scales[row / shape.group_rows * groups + col / shape.group_columns];
  }
  Linear AsLinear(DType operand_type) {
    Linear w;
    w.in = k;
    w.out = n;
    w.num_parts = 1;
    WeightMatrix& m = w.parts[0].weight;
    m.format = {shape.kind, operand_type, shape.scale_type, shape.group_columns, shape.group_rows};
    m.values = Tensor::Dense(bytes.data() + offset, DType::kU8, {n, k * bits() / 8});
    m.scales = Tensor::Dense(scale_bytes.data(), shape.scale_type,
                             {(n + shape.group_rows - 1) / shape.group_rows, groups});
    if (!zeros.empty()) m.zeros = Tensor::Dense(zeros.data(), DType::kU8, {n, groups});
    EXPECT_TRUE(m.Fits(k, Device()));
    return w;
  }
};

float Operand(DType operand_type, float x) {
  return operand_type == DType::kBF16 ? ToFloat(ToBFloat16(x)) : x;
}

float Fold(float (&lanes)[16]) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  }
  return lanes[0];
}

// True if x is quantised to integers.
bool HasIntegers(const Shape& shape, DType type) {
  return shape.kind != Kind::kE4M3 && type != DType::kF32;
}

// Returns the minimum integer that the largest magnitude is mapped to.
float LeastMaxInteger(DType type) {
  return type == DType::kI8 ? 127.0f : 16320.0f;
}

// A block of x as integers times a scale.
struct IntegerUnit {
  float scale = 0.0f;
  std::vector<int> values;

  IntegerUnit(const float* x, int n, DType type) : values(n) {
    float max = 0.0f;
    for (int i = 0; i < n; ++i) max = std::max(max, std::fabs(x[i]));
    if (max < 0x1p-100f) return;
    scale = max / 127.0f;
    float inverse = 127.0f / max;
    if (type != DType::kI8) {
      scale = 1.0f;
      while (std::nearbyint(max / scale) > 32639.0f) scale *= 2.0f;
      while (std::nearbyint(max / scale * 2.0f) <= 32639.0f) scale /= 2.0f;
      inverse = 1.0f / scale;
    }
    for (int i = 0; i < n; ++i) values[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  }
};

// One output by the contract of linear/integer.h.
float SpecifiedIntegerDot(const Weights& w, int row, const float* x, DType type, bool one_unit) {
  const int unit = std::min(w.shape.group_columns, 128);
  float y = 0.0f;
  for (int u = 0; u < w.k; u += unit) {
    const int end = std::min(u + unit, w.k);
    const IntegerUnit values(x + u, end - u, type);
    int64_t sum = 0;
    for (int col = u; col < end; ++col) {
      const int product = static_cast<int>(w.Factor(row, col)) * values.values[col - u];
      if (one_unit) {
        y += static_cast<float>(product) * values.scale * w.Scale(row, col);
      } else {
        sum += product;
      }
    }
    y = std::fma(static_cast<float>(sum) * values.scale, w.Scale(row, u), y);
  }
  return y;
}

// One output by the contract. With `one_unit`, scales are factors of each product instead, to show
// that the comparison distinguishes the two.
float SpecifiedDot(const Weights& w, int row, const float* x, DType type, bool one_unit = false) {
  if (HasIntegers(w.shape, type)) return SpecifiedIntegerDot(w, row, x, type, one_unit);
  constexpr int kFold = 128 * 32;
  const int unit = std::min(w.shape.group_columns, 128);
  float total = 0.0f;
  for (int begin = 0; begin < w.k; begin += kFold) {
    const int end = std::min(begin + kFold, w.k);
    float lanes[16] = {};
    for (int u = begin; u < end; u += unit) {
      const float scale = w.Scale(row, u);
      float sums[16] = {};
      for (int col = u; col < std::min(u + unit, end); col += 32) {
        for (int lane = 0; lane < 16; ++lane) {
          for (int c : {col + 2 * lane + 1, col + 2 * lane}) {
            const float factor = one_unit ? w.Factor(row, c) * scale : w.Factor(row, c);
            float& sum = one_unit ? lanes[lane] : sums[lane];
            sum = std::fma(factor, Operand(type, x[c]), sum);
          }
        }
      }
      if (one_unit) continue;
      for (int lane = 0; lane < 16; ++lane) {
        lanes[lane] = std::fma(sums[lane], scale, lanes[lane]);
      }
    }
    total = begin == 0 ? Fold(lanes) : total + Fold(lanes);
  }
  return total;
}

// The last is for integers only.
constexpr DType kFactorTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8};
bool HasType(const Shape& shape, DType type) {
  return shape.kind != Kind::kE4M3 || type != DType::kI8;
}
const int kWidths[] = {32, 64, 96, 128, 160, 1024, 4096, 4128, 9216};

TEST(CpuLinearQuantized, GivesTheBitsOfTheContract) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    if (!HasFma(set)) continue;
    Runner run(2, set, 33, 9216);
    for (const Shape& shape : kShapes) {
      for (DType type : kFactorTypes) {
        if (!HasType(shape, type)) continue;
        int outputs = 0, others = 0;
        for (int k : kWidths) {
          for (int tokens : {1, 2, 7, 33}) {
            Weights w(shape, 9, k, 3 + k, k % 3);
            const std::vector<float> x = RandomX(tokens, k, 17);
            const std::vector<float> y = run.Run(x.data(), tokens, w.AsLinear(type));
            for (int t : {0, tokens - 1}) {
              for (int r = 0; r < w.n; ++r) {
                const float* row = x.data() + t * k;
                ASSERT_EQ(y[t * w.n + r], SpecifiedDot(w, r, row, type))
                    << set << " " << NameOf(shape) << " " << DTypeName(type) << " K=" << k
                    << " T=" << tokens << " t=" << t << " n=" << r;
                ++outputs;
                others += y[t * w.n + r] != SpecifiedDot(w, r, row, type, /*one_unit=*/true);
              }
            }
          }
        }
        EXPECT_GT(others, outputs / 4) << set << " " << NameOf(shape);
      }
    }
  }
}

// Returns x as it is multiplied: rounded or quantised.
std::vector<double> Operands(const Shape& shape, DType type, const float* x, int k) {
  std::vector<double> operands(x, x + k);
  const int unit = std::min(shape.group_columns, 128);
  for (int begin = 0; begin < k; begin += unit) {
    const int end = std::min(begin + unit, k);
    const IntegerUnit integers(x + begin, end - begin, type);
    for (int i = begin; i < end; ++i) {
      operands[i] = HasIntegers(shape, type)
                        ? static_cast<double>(integers.scale) * integers.values[i - begin]
                        : Operand(type, x[i]);
    }
  }
  return operands;
}

// Bounds the rounding errors of the additions and of the products with each block's scales.
TEST(CpuLinearQuantized, IsAsExactAsItsSummationAllows) {
  constexpr int kN = 6, kTokens = 7;
  for (const std::string& set : CpuLinear::InstructionSets()) {
    Runner run(1, set, kTokens, 4128);
    for (const Shape& shape : kShapes) {
      for (DType type : kFactorTypes) {
        if (!HasType(shape, type)) continue;
        for (int k : {32, 160, 4128}) {
          if (IsSlow(set) && k > 160) continue;
          Weights w(shape, kN, k, 11 + k);
          const std::vector<float> x = RandomX(kTokens, k, 5);
          const std::vector<float> y = run.Run(x.data(), kTokens, w.AsLinear(type));
          double worst = 0;
          for (int i = 0; i < kTokens * kN; ++i) {
            const int t = i / kN, r = i % kN;
            const std::vector<double> operands = Operands(shape, type, x.data() + t * k, k);
            double sum = 0, magnitude = 0;
            for (int c = 0; c < k; ++c) {
              const double term = static_cast<double>(w.Factor(r, c)) * w.Scale(r, c) * operands[c];
              sum += term;
              magnitude += std::fabs(term);
            }
            worst = std::max(worst, std::fabs(y[i] - sum) / magnitude);
          }
          EXPECT_LE(worst, (2 * 4 + 2 * 128 + 6) * 0x1p-24)
              << set << " " << NameOf(shape) << " " << DTypeName(type) << " K=" << k;
        }
      }
    }
  }
}

// Huge elements reduce the precision of their own block only.
TEST(CpuLinearQuantized, IntegersOfXAreAsFineAsTheirUnitAllows) {
  constexpr int kN = 16, kK = 1024;
  for (const Shape& shape : kShapes) {
    if (shape.kind == Kind::kE4M3) continue;
    Weights w(shape, kN, kK, 29);
    std::vector<float> x = RandomX(1, kK, 31);
    x[300] = 2000.0f;
    const int unit = std::min(shape.group_columns, 128);
    for (DType type : {DType::kBF16, DType::kI8}) {
      Runner run(1, "", 1, kK);
      const std::vector<float> y = run.Run(x.data(), 1, w.AsLinear(type));
      for (int r = 0; r < kN; ++r) {
        double sum = 0, magnitude = 0, error = 0;
        for (int c = 0; c < kK; ++c) {
          const float* begin = x.data() + c / unit * unit;
          float max = 0.0f;
          for (int i = 0; i < unit; ++i) max = std::max(max, std::fabs(begin[i]));
          const double factor = static_cast<double>(w.Factor(r, c)) * w.Scale(r, c);
          sum += factor * x[c];
          magnitude += std::fabs(factor * x[c]);
          error += std::fabs(factor) * max / LeastMaxInteger(type) / 2;
        }
        EXPECT_LE(std::fabs(y[r] - sum), error + 300 * magnitude * 0x1p-24)
            << NameOf(shape) << " " << DTypeName(type);
      }
    }
  }
}

// Each code with each zero point, alone in its row: the scale times the selected element is exact.
TEST(CpuLinearQuantized, EveryCodeAndZeroIsExact) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    for (Kind kind : {Kind::kInt4, Kind::kInt8, Kind::kE4M3}) {
      const int codes = kind == Kind::kInt4 ? 16 : 256;
      const int zeros = kind == Kind::kE4M3 ? 1 : codes;
      const Shape shape{.kind = kind, .group_columns = 32, .has_zeros = kind != Kind::kE4M3};
      Weights w(shape, zeros, 32 * codes, 1);
      std::fill(w.bytes.begin(), w.bytes.end(), 0);
      std::fill(w.scales.begin(), w.scales.end(), 0.25f);
      const uint16_t quarter = ToHalf(0.25f).bits;
      for (size_t i = 0; i < w.scale_bytes.size(); i += 2) memcpy(&w.scale_bytes[i], &quarter, 2);
      for (int zero = 0; zero < zeros; ++zero) {
        for (int code = 0; code < codes; ++code) {
          if (shape.has_zeros) w.zeros[zero * codes + code] = static_cast<uint8_t>(zero);
          const int col = 32 * code + code % 32;  // every index of a K slice
          const size_t at = static_cast<size_t>(zero) * w.k + col;
          if (w.bits() == 8) {
            w.bytes[at] = static_cast<uint8_t>(code);
          } else {
            w.bytes[at / 2] |= static_cast<uint8_t>(code << (col % 2 * 4));
          }
        }
      }
      Runner run(2, set, 8, w.k);
      for (DType type : kFactorTypes) {
        if (!HasType(shape, type)) continue;
        const float chosen = type == DType::kI8 ? 127.0f : 4.0f;
        // Rows of x that select one column each, few and many at a time.
        for (int first = 0; first < codes; first += 8) {
          std::vector<float> x(8 * static_cast<size_t>(w.k));
          for (int t = 0; t < 8; ++t) x[t * w.k + 32 * (first + t) + (first + t) % 32] = chosen;
          for (int tokens : {1, 8}) {
            const std::vector<float> y = run.Run(x.data(), tokens, w.AsLinear(type));
            for (int t = 0; t < tokens; ++t) {
              for (int zero = 0; zero < zeros; ++zero) {
                const float expected = kind == Kind::kE4M3 ? FloatOfE4M3(first + t)
                                                           : static_cast<float>(first + t - zero);
                if (std::isnan(expected)) continue;  // files with NaN are refused
                ASSERT_EQ(y[t * w.n + zero], expected * (chosen / 4.0f))
                    << set << " code " << first + t << " zero " << zero;
              }
            }
          }
        }
      }
    }
  }
}

TEST(CpuLinearQuantized, RowsDependOnNothingElse) {
  constexpr int kTokens = 40, kN = 67;
  for (const Shape& shape : kShapes) {
    for (DType type : {DType::kF16, DType::kBF16, DType::kI8}) {
      if (!HasType(shape, type)) continue;
      for (int k : {96, 4224}) {
        Weights w(shape, kN, k, k, 1);
        const std::vector<float> x = RandomX(kTokens, k, 23);
        std::vector<float> expected;
        Runner one(1, "", 1, k);
        for (int t = 0; t < kTokens; ++t) {
          const std::vector<float> y = one.Run(x.data() + t * k, 1, w.AsLinear(type));
          expected.insert(expected.end(), y.begin(), y.end());
        }
        for (const std::string& set : CpuLinear::InstructionSets()) {
          if (!HasFma(set)) continue;
          for (int threads : {1, 3}) {
            Runner run(threads, set, kTokens, k);
            for (int tokens : {1, 2, 3, 4, 5, 6, 7, 11, 24, 25, 40}) {
              const int first = (tokens * 3) % (kTokens - tokens + 1);
              const std::vector<float> y = run.Run(x.data() + first * k, tokens, w.AsLinear(type));
              const std::vector<float> rows(expected.begin() + first * kN,
                                            expected.begin() + (first + tokens) * kN);
              ASSERT_TRUE(SameBits(y, rows)) << set << " " << NameOf(shape) << " K=" << k
                                             << " T=" << tokens << " threads=" << threads;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kuiper::cpu
