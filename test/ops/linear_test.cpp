// Compares the CPU linear layer with two references written here: a plain sum in double precision,
// and the numeric contract of linear/kernel.h, written out one lane at a time.
#include "linear_test_util.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "kuiper/base/half.h"

namespace kuiper::cpu {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// A matrix of any float type, `offset` bytes after an aligned address.
struct Weights {
  DType dtype;
  int n, k;
  size_t offset;
  std::vector<uint8_t> bytes;

  Weights(DType dtype, int n, int k, uint32_t seed, size_t offset = 0, float scale = 0.06f)
      : dtype(dtype),
        n(n),
        k(k),
        offset(offset),
        bytes(static_cast<size_t>(n) * k * DTypeBytes(dtype) + offset) {
    std::mt19937 rng(seed);
    for (size_t i = 0; i < static_cast<size_t>(n) * k; ++i) {
      const float v = Random(rng, scale);
      const uint16_t bits = dtype == DType::kF16 ? ToHalf(v).bits : ToBFloat16(v).bits;
      const size_t size = DTypeBytes(dtype);
      memcpy(&bytes[offset + i * size], dtype == DType::kF32 ? static_cast<const void*>(&v) : &bits,
             size);
    }
  }

  float At(int row, int col) const {
    const uint8_t* p = &bytes[offset + (static_cast<size_t>(row) * k + col) * DTypeBytes(dtype)];
    float v;
    uint16_t bits;
    memcpy(&bits, p, 2);
    if (dtype == DType::kF16) return ToFloat(Half{bits});
    if (dtype == DType::kBF16) return ToFloat(BFloat16{bits});
    memcpy(&v, p, 4);
    return v;
  }
  Tensor View() { return Tensor::Dense(bytes.data() + offset, dtype, {n, k}); }
  Linear AsLinear() {
    Linear w;
    w.in = k;
    w.out = n;
    w.num_parts = 1;
    w.parts[0].weight = DenseWeight(View());
    return w;
  }
};

float Operand(DType weights, float x) {
  return weights == DType::kBF16 ? ToFloat(ToBFloat16(x)) : x;
}

enum class FoldOrder { kContract, kLeftToRight };

// One output by the contract: 16 lanes, K slices from left to right, K blocks of 128 slices.
float SpecifiedDot(const Weights& w, int row, const float* x, FoldOrder order) {
  const int per_lane = w.dtype == DType::kBF16 ? 2 : 1;
  const int block = 128 * 16 * per_lane;
  float total = 0.0f;
  for (int begin = 0; begin < w.k; begin += block) {
    float lanes[16] = {};
    for (int chunk = begin; chunk < std::min(begin + block, w.k); chunk += 16 * per_lane) {
      for (int lane = 0; lane < 16; ++lane) {
        for (int i = per_lane - 1; i >= 0; --i) {
          const int col = chunk + lane * per_lane + i;
          if (col >= w.k) continue;
          lanes[lane] = std::fma(w.At(row, col), Operand(w.dtype, x[col]), lanes[lane]);
        }
      }
    }
    float sum = 0.0f;
    if (order == FoldOrder::kContract) {
      for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
      }
      sum = lanes[0];
    } else {
      for (float lane : lanes) sum += lane;
    }
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

const int kWidths[] = {1, 7, 16, 31, 33, 64, 128, 1000, 1024, 2048, 3072, 4096, 4097, 9001};

// Rounding errors of n additions and fused products are at most n u sum |w x|, u = 2^-24. A dropped
// or repeated element would be ~1/K of that sum, a hundred times more.
TEST(CpuLinear, IsAsExactAsItsSummationAllows) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    Runner run(2, set, 16, 9001);
    for (DType dtype : kTypes) {
      for (int k : kWidths) {
        const int n = 9, tokens = 7;
        Weights w(dtype, n, k, 11 + k);
        const std::vector<float> x = RandomX(tokens, k, 5);
        const std::vector<float> y = run.Run(x.data(), tokens, w.AsLinear());
        double worst = 0;
        for (int t = 0; t < tokens; ++t) {
          for (int r = 0; r < n; ++r) {
            double sum = 0, magnitude = 0;
            for (int i = 0; i < k; ++i) {
              const double term = static_cast<double>(w.At(r, i)) * Operand(dtype, x[t * k + i]);
              sum += term;
              magnitude += std::fabs(term);
            }
            worst = std::max(worst, std::fabs(y[t * n + r] - sum) / magnitude);
          }
        }
        const double additions = 2 * 128 + 4 + k / 2048 + 1;
        EXPECT_LE(worst, additions * 0x1p-24) << set << " " << DTypeName(dtype) << " K=" << k;
      }
    }
  }
}

TEST(CpuLinear, GivesTheBitsOfTheContract) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    Runner run(1, set, 16, 9001);
    for (DType dtype : kTypes) {
      // BF16 products are exact, so they need no fused multiply-add.
      if (!HasFma(set) && dtype != DType::kBF16) continue;
      int outputs = 0, other_order_differs = 0;
      for (int k : kWidths) {
        for (int tokens : {1, 8}) {
          Weights w(dtype, 5, k, 3 + k, 2);
          const std::vector<float> x = RandomX(tokens, k, 17);
          const std::vector<float> y = run.Run(x.data(), tokens, w.AsLinear());
          for (int t : {0, tokens - 1}) {
            for (int r = 0; r < w.n; ++r) {
              const float* row = x.data() + t * k;
              const float expected = SpecifiedDot(w, r, row, FoldOrder::kContract);
              ASSERT_EQ(y[t * w.n + r], expected)
                  << set << " " << DTypeName(dtype) << " K=" << k << " t=" << t << " n=" << r;
              ++outputs;
              other_order_differs +=
                  y[t * w.n + r] != SpecifiedDot(w, r, row, FoldOrder::kLeftToRight);
            }
          }
        }
      }
      // Negative control: the comparison distinguishes orders of summation.
      EXPECT_GT(other_order_differs, outputs / 4) << set << " " << DTypeName(dtype);
    }
  }
}

// Rows computed one by one, on one thread with the best instruction set, are compared with all
// other ways to compute them.
TEST(CpuLinear, RowsDependOnNothingElse) {
  constexpr int kTokens = 75;
  // All numbers up to 40; above, those near the sizes at which the code path changes.
  const auto is_tried = [](int tokens) {
    return tokens <= 40 || tokens % 16 < 2 || tokens % 16 == 15 || tokens % 8 == 1;
  };
  for (DType dtype : kTypes) {
    for (int k : kWidths) {
      for (int n : {1, 6, 67}) {
        Weights w(dtype, n, k, k + n, k % 3);
        const std::vector<float> x = RandomX(kTokens, k, 23);
        std::vector<float> expected;
        Runner one(1, "", 1, k);
        for (int t = 0; t < kTokens; ++t) {
          const std::vector<float> y = one.Run(x.data() + t * k, 1, w.AsLinear());
          expected.insert(expected.end(), y.begin(), y.end());
        }
        for (const std::string& set : CpuLinear::InstructionSets()) {
          if (!HasFma(set) && dtype != DType::kBF16) continue;
          if (IsSlow(set) && (k > 1024 || n != 6)) continue;
          const int threads = 1 + (k + n) % 3;
          Runner run(threads, set, kTokens, k);
          for (int tokens = 1; tokens <= kTokens; ++tokens) {
            if (!is_tried(tokens) || (k > 1024 && tokens > 8 && tokens % 7 != 0)) continue;
            const int first = (tokens * 3) % (kTokens - tokens + 1);
            const std::vector<float> y = run.Run(x.data() + first * k, tokens, w.AsLinear());
            const std::vector<float> rows(expected.begin() + first * n,
                                          expected.begin() + (first + tokens) * n);
            ASSERT_TRUE(SameBits(y, rows))
                << set << " " << DTypeName(dtype) << " K=" << k << " N=" << n << " T=" << tokens
                << " threads=" << threads;
          }
        }
      }
    }
  }
}

TEST(CpuLinear, LongPromptsCanBeSplitAnywhere) {
  constexpr int kTokens = 512, kN = 70;
  for (DType dtype : kTypes) {
    for (int k : {1024, 4097}) {
      Weights w(dtype, kN, k, 91, 2);
      const std::vector<float> x = RandomX(kTokens, k, 29);
      Runner two(2, "", kTokens, k);
      const std::vector<float> expected = two.Run(x.data(), kTokens, w.AsLinear());
      for (int threads : {1, 3}) {
        Runner run(threads, "", kTokens, k);
        for (int split : {511, 300, 100, 64, 37, 5}) {
          if (split < 64 && threads == 1) continue;
          std::vector<float> got;
          for (int t = 0; t < kTokens; t += split) {
            const std::vector<float> y =
                run.Run(x.data() + t * k, std::min(split, kTokens - t), w.AsLinear());
            got.insert(got.end(), y.begin(), y.end());
          }
          ASSERT_TRUE(SameBits(got, expected))
              << DTypeName(dtype) << " K=" << k << " split=" << split << " threads=" << threads;
        }
      }
    }
  }
}

// q, k, v with biases of different types, between strided rows, against three dense calls.
void PartsGetTheirBias(int k) {
  constexpr int kMaxTokens = 70, kXStride = 1100, kOutStride = 300;
  const int rows[] = {96, 17, 50};
  std::vector<float> bias_f32(96);
  std::vector<Half> bias_f16(50);
  for (int i = 0; i < 96; ++i) bias_f32[i] = 0.25f * static_cast<float>(i) - 7.0f;
  for (int i = 0; i < 50; ++i) bias_f16[i] = ToHalf(1.0f / static_cast<float>(i + 1));
  for (const std::string& set : CpuLinear::InstructionSets()) {
    Runner run(2, set, kMaxTokens, k);
    for (DType dtype : kTypes) {
      std::vector<Weights> parts;
      Linear w;
      for (int i = 0; i < 3; ++i) parts.emplace_back(dtype, rows[i], k, 40 + i);
      for (Weights& part : parts) {
        w.parts[w.num_parts++].weight = DenseWeight(part.View());
        w.out += part.n;
      }
      w.in = k;
      w.parts[0].bias = Tensor::Dense(bias_f32.data(), DType::kF32, {96});
      w.parts[2].bias = Tensor::Dense(bias_f16.data(), DType::kF16, {50});
      for (int tokens : {1, 4, 7, 21, kMaxTokens}) {
        if (IsSlow(set) && tokens > 7) continue;
        std::vector<float> dense = RandomX(tokens, k, 31);
        std::vector<float> x(tokens * kXStride, NAN), y(tokens * kOutStride, -1.0f);
        for (int t = 0; t < tokens; ++t) memcpy(&x[t * kXStride], &dense[t * k], k * 4);
        Tensor tx = Tensor::Dense(x.data(), DType::kF32, {tokens, kXStride}).Cols(0, k);
        Tensor ty = Tensor::Dense(y.data(), DType::kF32, {tokens, kOutStride}).Cols(3, 3 + w.out);
        run.linear().Apply(ty, tx, w);
        int column = 3;
        for (int i = 0; i < 3; ++i) {
          const std::vector<float> alone = run.Run(dense.data(), tokens, parts[i].AsLinear());
          for (int t = 0; t < tokens; ++t) {
            for (int r = 0; r < rows[i]; ++r) {
              const float sum = alone[t * rows[i] + r];
              const float expected = i == 0   ? sum + bias_f32[r]
                                     : i == 2 ? sum + ToFloat(bias_f16[r])
                                              : sum;
              ASSERT_EQ(y[t * kOutStride + column + r], expected)
                  << set << " part " << i << " T=" << tokens << " t=" << t << " n=" << r;
            }
          }
          column += rows[i];
        }
        for (int t = 0; t < tokens; ++t) {
          for (int c = 0; c < kOutStride; ++c) {
            if (c >= 3 && c < column) continue;
            ASSERT_EQ(y[t * kOutStride + c], -1.0f) << "overwritten";
          }
        }
      }
    }
  }
}

TEST(CpuLinear, PartsLieSideBySideAndGetTheirBias) {
  PartsGetTheirBias(1000);
  PartsGetTheirBias(1024);
}

TEST(CpuLinear, SubnormalBf16ProductsCountAsZeroEverywhere) {
  constexpr int kK = 256, kN = 8;
  Weights w(DType::kBF16, kN, kK, 77, 0, 2e-19f);
  const std::vector<float> x = RandomX(9, kK, 78, 2e-19f);
  std::vector<float> expected;
  int nonzero = 0;
  for (const std::string& set : CpuLinear::InstructionSets()) {
    if (!HasFma(set)) continue;
    Runner run(1, set, 9, kK);
    const std::vector<float> y = run.Run(x.data(), 9, w.AsLinear());
    for (float v : y) {
      EXPECT_TRUE(v == 0.0f || std::fabs(v) >= 0x1p-126f) << set << " " << v;
      nonzero += v != 0.0f;
    }
    if (expected.empty()) expected = y;
    EXPECT_TRUE(SameBits(y, expected)) << set;
  }
  EXPECT_TRUE(expected.empty() || nonzero > 0) << "the case tests nothing";
}

TEST(CpuLinear, NanAndInfinityReachTheirRowsOnly) {
  constexpr int kK = 100, kN = 5;
  for (const std::string& set : CpuLinear::InstructionSets()) {
    Runner run(1, set, 8, kK);
    for (DType dtype : kTypes) {
      Weights w(dtype, kN, kK, 79);
      std::vector<float> x = RandomX(8, kK, 80);
      x[2 * kK + 99] = NAN;
      x[5 * kK + 3] = INFINITY;
      const std::vector<float> y = run.Run(x.data(), 8, w.AsLinear());
      for (int t = 0; t < 8; ++t) {
        for (int n = 0; n < kN; ++n) {
          const float v = y[t * kN + n];
          EXPECT_EQ(std::isnan(v), t == 2) << set << " " << DTypeName(dtype) << " t=" << t;
          EXPECT_EQ(std::isinf(v), t == 5) << set << " " << DTypeName(dtype) << " t=" << t;
        }
      }
    }
  }
}

#ifdef __linux__
// The last tensor of a mapped file may end where the mapping ends.
TEST(CpuLinear, ReadsNothingBehindTheWeights) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = 64 * page;
  auto* map = static_cast<uint8_t*>(
      mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(map, MAP_FAILED);
  ASSERT_EQ(mprotect(map + size, page, PROT_NONE), 0);
  for (const std::string& set : CpuLinear::InstructionSets()) {
    for (int k : {1, 5, 17, 33, 100, 1000, 1024}) {
      Runner run(2, set, 33, k);
      for (DType dtype : kTypes) {
        for (int n : {1, 4, 7, 18}) {
          Weights w(dtype, n, k, 51);
          ASSERT_LE(w.bytes.size(), size);
          uint8_t* end_aligned = map + size - w.bytes.size();
          memcpy(end_aligned, w.bytes.data(), w.bytes.size());
          Linear at_end = w.AsLinear();
          at_end.parts[0].weight.values.data = end_aligned;
          for (int tokens : {1, 5, 6, 17, 33}) {
            const std::vector<float> x = RandomX(tokens, k, 53);
            EXPECT_TRUE(SameBits(run.Run(x.data(), tokens, at_end),
                                 run.Run(x.data(), tokens, w.AsLinear())))
                << set << " " << DTypeName(dtype) << " K=" << k << " N=" << n << " T=" << tokens;
          }
        }
      }
    }
  }
  munmap(map, size + page);
}
#endif

}  // namespace
}  // namespace kuiper::cpu
