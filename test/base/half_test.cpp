#include "kuiper/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kuiper/base/dtype.h"

namespace kuiper {
namespace {

uint32_t Bits(float x) {
  return std::bit_cast<uint32_t>(x);
}
float FromBits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// Returns the value of a binary format from its definition (IEEE 754): no bit tricks, only ldexp.
double NaiveValue(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const double fraction = std::ldexp(bits & ((1u << mantissa_bits) - 1), -mantissa_bits);
  const double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

// Finds the nearest value of a 16-bit format by comparing distances; ties go to the even pattern.
// `x` is finite. Infinity stands one step above the largest value.
uint16_t NaiveRound(float x, int exponent_bits, int mantissa_bits) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double a = std::fabs(static_cast<double>(x));
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  const double step = NaiveValue(infinity - 1, exponent_bits, mantissa_bits) -
                      NaiveValue(infinity - 2, exponent_bits, mantissa_bits);
  const auto value = [&](uint32_t bits) {
    return bits == infinity ? NaiveValue(infinity - 1, exponent_bits, mantissa_bits) + step
                            : NaiveValue(bits, exponent_bits, mantissa_bits);
  };
  uint32_t low = 0, high = infinity;  // patterns of positive values are ordered like the values
  if (a >= value(high)) return sign | static_cast<uint16_t>(infinity);
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value(middle) <= a ? low : high) = middle;
  }
  const double below = a - value(low), above = value(high) - a;
  const bool up = above < below || (above == below && high % 2 == 0);
  return sign | static_cast<uint16_t>(up ? high : low);
}

// Returns every boundary of rounding: each 16-bit value, the middle to its neighbour, and the
// floats next to both, with either sign.
std::vector<float> Boundaries(int exponent_bits, int mantissa_bits) {
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  std::vector<float> samples;
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const double value = NaiveValue(bits, exponent_bits, mantissa_bits);
    const double next = bits + 1 == infinity
                            ? 2 * value - NaiveValue(bits - 1, exponent_bits, mantissa_bits)
                            : NaiveValue(bits + 1, exponent_bits, mantissa_bits);
    for (double x : {value, (value + next) / 2}) {
      const float f = static_cast<float>(x);
      for (float near : {f, std::nextafter(f, 0.0f), std::nextafter(f, INFINITY)}) {
        if (!std::isfinite(near)) continue;
        samples.push_back(near);
        samples.push_back(-near);
      }
    }
  }
  return samples;
}

std::vector<float> RandomFloats(int count) {
  std::mt19937 rng(11);
  std::vector<float> samples;
  while (static_cast<int>(samples.size()) < count) {
    uint32_t bits = static_cast<uint32_t>(rng());
    // Half of them in the exponent range of FP16 and around it.
    if (rng() % 2) bits = (bits & 0x807FFFFFu) | ((100 + rng() % 46) << 23);
    if (std::isfinite(FromBits(bits))) samples.push_back(FromBits(bits));
  }
  return samples;
}

TEST(HalfTest, EveryHalfHasTheValueOfItsBits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float actual = ToFloat(Half{static_cast<uint16_t>(bits)});
    const double expected = NaiveValue(bits, 5, 10);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(Bits(actual), Bits(static_cast<float>(expected))) << bits;
    }
  }
}

TEST(HalfTest, EveryBFloat16HasTheValueOfItsBits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float actual = ToFloat(BFloat16{static_cast<uint16_t>(bits)});
    const double expected = NaiveValue(bits, 8, 7);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(Bits(actual), Bits(static_cast<float>(expected))) << bits;
    }
  }
}

TEST(HalfTest, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    if (std::isnan(NaiveValue(bits, 5, 10))) {
      ASSERT_TRUE(std::isnan(NaiveValue(ToHalf(ToFloat(Half{bits})).bits, 5, 10))) << i;
    } else {
      ASSERT_EQ(ToHalf(ToFloat(Half{bits})).bits, bits);
    }
    if (std::isnan(NaiveValue(bits, 8, 7))) {
      ASSERT_TRUE(std::isnan(NaiveValue(ToBFloat16(ToFloat(BFloat16{bits})).bits, 8, 7))) << i;
    } else {
      ASSERT_EQ(ToBFloat16(ToFloat(BFloat16{bits})).bits, bits);
    }
  }
}

TEST(HalfTest, HalfRoundsToNearestEven) {
  for (float x : Boundaries(5, 10)) ASSERT_EQ(ToHalf(x).bits, NaiveRound(x, 5, 10)) << x;
  for (float x : RandomFloats(200000)) ASSERT_EQ(ToHalf(x).bits, NaiveRound(x, 5, 10)) << x;
}

TEST(HalfTest, BFloat16RoundsToNearestEven) {
  for (float x : Boundaries(8, 7)) ASSERT_EQ(ToBFloat16(x).bits, NaiveRound(x, 8, 7)) << x;
  for (float x : RandomFloats(200000)) ASSERT_EQ(ToBFloat16(x).bits, NaiveRound(x, 8, 7)) << x;
}

// GCC 12 for ARM has the macro, but supports the type only in C.
#if defined(__FLT16_MANT_DIG__) && (defined(__clang__) || defined(__SSE2__) || __GNUC__ >= 13)
// Compares with the compiler's own half precision (library code or F16C).
TEST(HalfTest, HalfAgreesWithTheCompiler) {
  const auto compiled = [](float x) { return std::bit_cast<uint16_t>(static_cast<_Float16>(x)); };
  for (float x : Boundaries(5, 10)) ASSERT_EQ(ToHalf(x).bits, compiled(x)) << x;
  for (float x : RandomFloats(3000000)) ASSERT_EQ(ToHalf(x).bits, compiled(x)) << x;
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const float expected = static_cast<float>(std::bit_cast<_Float16>(bits));
    if (std::isnan(expected)) continue;
    ASSERT_EQ(Bits(ToFloat(Half{bits})), Bits(expected)) << i;
  }
}
#endif

TEST(HalfTest, OverflowGivesInfinity) {
  EXPECT_EQ(ToHalf(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(ToHalf(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(ToHalf(65520.0f).bits, 0x7C00);
  EXPECT_EQ(ToHalf(-1e30f).bits, 0xFC00);
  EXPECT_EQ(ToHalf(INFINITY).bits, 0x7C00);
  EXPECT_EQ(ToHalf(-INFINITY).bits, 0xFC00);
  EXPECT_EQ(ToBFloat16(FromBits(0x7F7F7FFF)).bits, 0x7F7F);
  EXPECT_EQ(ToBFloat16(FromBits(0x7F7F8000)).bits, 0x7F80);
  EXPECT_EQ(ToBFloat16(-std::numeric_limits<float>::max()).bits, 0xFF80);
  EXPECT_EQ(ToBFloat16(INFINITY).bits, 0x7F80);
  EXPECT_EQ(ToBFloat16(-INFINITY).bits, 0xFF80);
}

TEST(HalfTest, NanStaysNan) {
  // Payloads in the dropped bits must not round to infinity, nor carry into the sign.
  for (uint32_t bits : {0x7F800001u, 0x7F801FFFu, 0x7FBFFFFFu, 0x7FC00000u, 0x7FFFFFFFu,
                        0xFF800001u, 0xFFC00000u, 0xFFFFFFFFu}) {
    const uint16_t sign = static_cast<uint16_t>(bits >> 16) & 0x8000;
    const uint16_t half = ToHalf(FromBits(bits)).bits;
    EXPECT_TRUE(std::isnan(NaiveValue(half, 5, 10))) << std::hex << bits;
    EXPECT_EQ(half & 0x8000, sign);
    const uint16_t bfloat = ToBFloat16(FromBits(bits)).bits;
    EXPECT_TRUE(std::isnan(NaiveValue(bfloat, 8, 7))) << std::hex << bits;
    EXPECT_EQ(bfloat & 0x8000, sign);
  }
}

TEST(HalfTest, ZerosKeepTheirSign) {
  EXPECT_EQ(ToHalf(-0.0f).bits, 0x8000);
  EXPECT_EQ(ToHalf(0.0f).bits, 0);
  EXPECT_EQ(ToBFloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(Bits(ToFloat(Half{0x8000})), 0x80000000u);
}

TEST(HalfTest, FromFloatChoosesByType) {
  EXPECT_EQ(FromFloat<float>(1.5f), 1.5f);
  EXPECT_EQ(FromFloat<Half>(1.5f).bits, 0x3E00);
  EXPECT_EQ(FromFloat<BFloat16>(1.5f).bits, 0x3FC0);
  EXPECT_EQ(DTypeOf<Half>::value, DType::kF16);
  EXPECT_EQ(DTypeOf<BFloat16>::value, DType::kBF16);
}

}  // namespace
}  // namespace kuiper
