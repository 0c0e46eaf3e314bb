// The matrix products of attention over INT8: exact sums with every instruction set of this
// machine.
#include "kuiper/kernels/cpu/attention_int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kuiper/kernels/cpu/attention_items.h"

namespace kuiper::cpu {
namespace {

constexpr int kRows = 8, kMaxElements = 512;

struct alignas(64) Integers {
  int16_t rows[kMicroRows][kMaxElements];
};
struct alignas(64) Codes {
  int8_t rows[kRows][kMaxElements];
};

// Returns all codes and, of the integers, the largest ones. The first rows of both have only the
// largest ones, so that sums reach the limits of 32 bits.
Integers MakeIntegers(std::mt19937& rng) {
  Integers x;
  for (int r = 0; r < kMicroRows; ++r) {
    for (int16_t& value : x.rows[r]) {
      const int kind = static_cast<int>(rng() % 8);
      value = static_cast<int16_t>(r == 0 || kind == 0 ? 32767
                                   : kind == 1         ? -32767
                                                       : static_cast<int>(rng() % 65535) - 32767);
    }
  }
  return x;
}
Codes MakeCodes(std::mt19937& rng) {
  Codes codes;
  for (int r = 0; r < kRows; ++r) {
    for (int8_t& code : codes.rows[r]) code = r == 0 ? -128 : static_cast<int8_t>(rng());
  }
  for (int i = 0; i < kMaxElements; ++i) codes.rows[1][i] = static_cast<int8_t>(i);
  return codes;
}

std::vector<const uint8_t*> RowsOf(const Codes& codes) {
  std::vector<const uint8_t*> rows;
  for (const auto& row : codes.rows) rows.push_back(reinterpret_cast<const uint8_t*>(row));
  return rows;
}

TEST(AttentionInt8Test, ScoresAreExactSums) {
  std::mt19937 rng(3);
  const Integers x = MakeIntegers(rng);
  const Codes codes = MakeCodes(rng);
  const std::vector<const uint8_t*> rows = RowsOf(codes);
  for (const Int8Kernel* kernel : Int8Kernels()) {
    ASSERT_GE(kernel->dot_rows, 1);
    for (const int k : {32, 64, 96, 128, 256, kMaxElements}) {
      for (int num_x = 1; num_x <= kernel->dot_rows; ++num_x) {
        std::vector<float> sums(num_x * kRows);
        DotArgs args;
        args.x = reinterpret_cast<const uint8_t*>(x.rows);
        args.x_stride = sizeof(x.rows[0]);
        args.rows = rows.data();
        args.count = kRows;
        args.k = k;
        args.sums = sums.data();
        args.sum_stride = kRows;
        kernel->dots[num_x](args);
        for (int m = 0; m < num_x; ++m) {
          for (int n = 0; n < kRows; ++n) {
            int64_t exact = 0;
            for (int i = 0; i < k; ++i) exact += int64_t{x.rows[m][i]} * codes.rows[n][i];
            EXPECT_EQ(sums[m * kRows + n], static_cast<float>(exact))
                << k << ", " << m << ", " << n;
          }
        }
      }
    }
  }
}

// Both value layouts, in place and packed. A row's integers are in the first half of the memory of
// as many floats.
TEST(AttentionInt8Test, OutputsAreExactSumsOfTheTileTimesAFactor) {
  constexpr int kCols = 96, kPairs = kRows / 2;
  std::mt19937 rng(4);
  const Integers weights = MakeIntegers(rng);
  const Codes codes = MakeCodes(rng);
  const std::vector<const uint8_t*> rows = RowsOf(codes);
  const float factors[kMicroRows] = {1.0f, 0x1p-15f, 0.3f, 1e-7f, 0.0f, 7.0f};
  alignas(64) float a[kMicroRows][kRows];
  for (int r = 0; r < kMicroRows; ++r) std::memcpy(a[r], weights.rows[r], kRows * sizeof(int16_t));
  for (const Int8Kernel* kernel : Int8Kernels()) {
    alignas(64) uint32_t pairs[kPairs][kCols];
    for (int k = 0; k < kPairs; ++k) {
      kernel->pack(codes.rows[2 * k], codes.rows[2 * k + 1], kCols, pairs[k]);
    }
    for (int num_rows = 1; num_rows <= kMicroRows; ++num_rows) {
      for (const int begin : {0, 1}) {
        for (const bool packed : {false, true}) {
          std::vector<float> c(num_rows * kCols);
          for (size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i % 7) - 3.0f;
          const std::vector<float> before = c;
          const PairProduct product{.a = a[0],
                                    .a_stride = kRows,
                                    .begin = begin,
                                    .end = kPairs,
                                    .cols = kCols,
                                    .c = c.data(),
                                    .c_stride = kCols,
                                    .factors = factors,
                                    .b_stride = kCols};
          if (packed) {
            kernel->multiply_packed(num_rows, product, pairs[0]);
          } else {
            kernel->multiply_rows(num_rows, product, rows.data());
          }
          for (int r = 0; r < num_rows; ++r) {
            for (int n = 0; n < kCols; ++n) {
              int64_t exact = 0;
              for (int k = 2 * begin; k < kRows; ++k) {
                exact += int64_t{weights.rows[r][k]} * codes.rows[k][n];
              }
              const auto sum = static_cast<float>(exact);
              const float fused = std::fma(sum, factors[r], before[r * kCols + n]);
              const float apart = sum * factors[r] + before[r * kCols + n];
              const float got = c[r * kCols + n];
              // Sets without a fused multiply-add round twice.
              EXPECT_TRUE(got == fused || got == apart)
                  << got << " instead of " << fused << " at " << r << ", " << n;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kuiper::cpu
