// The wrappers of kernels/cuda compared with plain loops: on the emulated device under every
// schedule, and on the GPU if there is one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kuiper/base/half.h"
#include "test/simt/schedules.h"
#include "test/simt/wrapper_array.h"

namespace kuiper::simt_test {
namespace {

class WrappersTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("simt")) {
      w_ = simt_gpu::GetWrappers();
      return;
    }
    const std::optional<Wrappers> gpu = GpuWrappers();
    if (!gpu.has_value()) GTEST_SKIP() << "no GPU";
    w_ = *gpu;
  }

  template <typename Body>
  void ForEach(Body body) {
    if (GetParam() == std::string("simt")) {
      ForEachSchedule(body);
    } else {
      body();
    }
  }

  Wrappers w_{};
};

std::vector<float> Count(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i + 1);
  return v;
}

TEST_P(WrappersTest, AsyncCopiesMoveEveryPieceAndFillWithZeros) {
  ForEach([&] {
    Array<float> in(w_, Count(256)), out(w_, std::vector<float>(256, -1));
    w_.reverse_async(out.device(), in.device(), 2, 200);
    const std::vector<float>& result = out.host();
    for (size_t i = 0; i < 256; ++i) {
      const size_t source = i / 128 * 128 + 127 - i % 128;
      ASSERT_EQ(result[i], source < 200 ? static_cast<float>(source + 1) : 0.0f) << i;
    }
  });
}

// d [16, 8] of random a, b and c; returns the largest error against double, in units of what FP32
// accumulation may do. With `integers` every order of summation is exact.
template <typename T>
double ErrorOfMma(const Wrappers& w, void (*multiply)(float*, const T*, const T*, bool),
                  bool integers, bool transposed) {
  std::mt19937 rng(11);
  std::uniform_int_distribution<int> integer(-9, 9);
  std::normal_distribution<float> real(0, 1);
  const auto draw = [&] {
    return FromFloat<T>(integers ? static_cast<float>(integer(rng)) : real(rng));
  };
  std::vector<T> a(256), b(128);  // [m, k], [n, k] or [k, n]
  for (T& x : a) x = draw();
  for (T& x : b) x = draw();
  Array<T> da(w, a), db(w, b);
  std::vector<float> c(128);
  for (float& x : c) x = integers ? static_cast<float>(integer(rng)) : real(rng);
  Array<float> dd(w, c);
  multiply(dd.device(), da.device(), db.device(), transposed);
  const std::vector<float>& d = dd.host();
  double worst = 0;
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 8; ++n) {
      double sum = c[m * 8 + n], magnitude = std::fabs(sum);
      for (size_t k = 0; k < 16; ++k) {
        const double product = static_cast<double>(ToFloat(a[m * 16 + k])) *
                               ToFloat(b[transposed ? k * 8 + n : n * 16 + k]);
        sum += product;
        magnitude += std::fabs(product);
      }
      worst = std::fmax(worst, std::fabs(d[m * 8 + n] - sum) / (magnitude * 16 * 0x1p-23));
    }
  }
  return worst;
}

TEST_P(WrappersTest, MmaPutsEveryProductInItsPlace) {
  ForEach([&] {
    for (const bool transposed : {false, true}) {
      EXPECT_EQ(ErrorOfMma(w_, w_.multiply_half, true, transposed), 0);
      EXPECT_EQ(ErrorOfMma(w_, w_.multiply_bfloat16, true, transposed), 0);
    }
  });
}

TEST_P(WrappersTest, MmaAccumulatesInFp32) {
  EXPECT_LT(ErrorOfMma(w_, w_.multiply_half, false, false), 1);
  EXPECT_LT(ErrorOfMma(w_, w_.multiply_bfloat16, false, false), 1);
}

// The layout according to the PTX manual: thread t holds elements 2 * (t % 4) and the next one of
// row t / 4 of each matrix. A matrix is 8 rows.
TEST_P(WrappersTest, LoadMatrixGivesEachLaneItsElements) {
  ForEach([&] {
    std::vector<uint16_t> in(2 * 256);
    for (size_t i = 0; i < 256; ++i) in[i] = static_cast<uint16_t>(1000 + i);
    Array<uint16_t> input(w_, in);
    Array<uint32_t> output(w_, std::vector<uint32_t>(2 * 4 * 32));
    for (const bool transposed : {false, true}) {
      w_.load_matrices(output.device(), input.device(), transposed);
      const std::vector<uint32_t>& out = output.host();
      for (size_t i = 0; i < 2 * 4 * 32; ++i) {
        const size_t lane = i % 32, row = 8 * (i / 32);
        const size_t r = lane / 4, c = 2 * (lane % 4);
        const uint32_t low = transposed ? in[(row + c) * 8 + r] : in[(row + r) * 8 + c];
        const uint32_t high = transposed ? in[(row + c + 1) * 8 + r] : in[(row + r) * 8 + c + 1];
        ASSERT_EQ(out[i], low | high << 16) << i << " " << transposed;
      }
    }
  });
}

// Products and sums whose exact value fits a double, which is rounded once.
template <typename T>
void ExpectRoundedOnce(const Wrappers& w, void (*fma)(uint32_t*, const uint32_t*, const uint32_t*,
                                                      const uint32_t*, int)) {
  constexpr int kPairs = 512;
  std::mt19937 rng(13);
  const auto draw = [&](int smallest) {
    const auto value = static_cast<double>(static_cast<int>(rng() % 511) - 255);
    return FromFloat<T>(
        static_cast<float>(std::ldexp(value, smallest - static_cast<int>(rng() % 9))));
  };
  std::vector<T> values[3];
  for (auto& v : values) {
    for (int i = 0; i < 2 * kPairs; ++i) v.push_back(draw(-2));
  }
  // 1 + 2^-m + 2^-n: a tie, and a tie that the second addend decides.
  const int m = sizeof(T) == 2 && std::is_same_v<T, Half> ? 11 : 8;
  values[0][0] = values[1][0] = FromFloat<T>(1.0f);
  values[2][0] = FromFloat<T>(std::ldexp(1.0f, -m));
  values[0][1] = FromFloat<T>(1.0f + std::ldexp(1.0f, 1 - m));
  values[1][1] = FromFloat<T>(1.0f + std::ldexp(1.0f, 1 - m));
  values[2][1] = FromFloat<T>(-std::ldexp(1.0f, 2 - 2 * m));
  std::vector<uint32_t> packed[3];
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < kPairs; ++i) {
      packed[k].push_back(values[k][2 * i].bits | uint32_t{values[k][2 * i + 1].bits} << 16);
    }
  }
  Array<uint32_t> a(w, packed[0]), b(w, packed[1]), c(w, packed[2]);
  Array<uint32_t> out(w, std::vector<uint32_t>(kPairs));
  fma(out.device(), a.device(), b.device(), c.device(), kPairs);
  const std::vector<uint32_t>& result = out.host();
  for (int i = 0; i < 2 * kPairs; ++i) {
    const double exact =
        double{ToFloat(values[0][i])} * ToFloat(values[1][i]) + ToFloat(values[2][i]);
    const auto bits = static_cast<uint16_t>(result[i / 2] >> i % 2 * 16);
    const double error = std::fabs(ToFloat(T{bits}) - exact);
    if ((bits & 0x7fff) == 0) {
      ASSERT_EQ(error, 0) << i;
      continue;
    }
    // No neighbour is nearer, and at a tie the last bit is even.
    for (const int step : {-1, 1}) {
      const auto neighbour = static_cast<uint16_t>(bits + step);
      const double other = std::fabs(ToFloat(T{neighbour}) - exact);
      ASSERT_TRUE(error < other || (error == other && bits % 2 == 0)) << i;
    }
  }
}

TEST_P(WrappersTest, FmaOfPairsIsRoundedOnce) {
  ExpectRoundedOnce<Half>(w_, w_.fma_pairs_half);
  ExpectRoundedOnce<BFloat16>(w_, w_.fma_pairs_bfloat16);
}

TEST_P(WrappersTest, TheLastBlockSeesWhatTheOthersWrote) {
  ForEach([&] {
    Array<float> in(w_, std::vector<float>(1000, 1.0f)), out(w_, {0}), partial(w_, Count(7));
    Array<unsigned> ticket(w_, {0});
    for (int run = 0; run < 2; ++run) {
      w_.grid_sum(out.device(), partial.device(), ticket.device(), in.device(), 1000, 7, true);
      EXPECT_EQ(out.host()[0], 1000.0f);
      EXPECT_EQ(ticket.host()[0], 0u);
    }
  });
}

TEST_P(WrappersTest, KernelsMayAskForMoreSharedMemory) {
  ForEach([&] {
    Array<float> in(w_, Count(25600)), out(w_, Count(25600));
    w_.double_in_shared(out.device(), in.device(), 25600);
    const std::vector<float>& result = out.host();
    for (size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], 2 * static_cast<float>(i + 1));
  });
}

std::string Name(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}
INSTANTIATE_TEST_SUITE_P(Simt, WrappersTest, testing::Values("simt"), Name);
#if defined(KUIPER_WITH_CUDA)
INSTANTIATE_TEST_SUITE_P(Gpu, WrappersTest, testing::Values("cuda"), Name);
#endif

}  // namespace
}  // namespace kuiper::simt_test
