#include "kuiper/quant/codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kuiper/base/half.h"

namespace kuiper {
namespace {

std::vector<float> RandomValues(size_t count, uint32_t seed, float shift = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value(shift, 0.05f);
  std::vector<float> values(count);
  for (float& x : values) x = value(random);
  return values;
}

float Stored(DType type, float x) {
  return type == DType::kF16    ? ToFloat(ToHalf(x))
         : type == DType::kBF16 ? ToFloat(ToBFloat16(x))
                                : x;
}

// No other code is nearer to a value; scales are values of their type; extremes fit.
TEST(Codes, AreTheNearestOnTheirGrid) {
  for (const int bits : {4, 8}) {
    for (const bool symmetric : {true, false}) {
      for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const float shift : {0.f, 0.2f, -0.2f}) {
          const CodeScheme scheme{bits, 64, symmetric, type};
          const std::vector<float> values = RandomValues(6 * 128, bits, shift);
          const CodedMatrix matrix = Encode(values, 6, 128, {}, scheme, 2);
          const std::vector<float> decoded = Decode(matrix);
          for (size_t i = 0; i < values.size(); ++i) {
            const CodeGrid& grid = matrix.grids[i / 64];
            EXPECT_EQ(grid.scale, Stored(type, grid.scale));
            EXPECT_TRUE(!symmetric || grid.zero == 1 << (bits - 1));
            EXPECT_EQ(decoded[i], static_cast<float>(matrix.codes[i] - grid.zero) * grid.scale);
            float nearest = INFINITY;
            for (int code = 0; code < 1 << bits; ++code) {
              const float value = static_cast<float>(code - grid.zero) * grid.scale;
              nearest = std::min(nearest, std::abs(value - values[i]));
            }
            EXPECT_LE(std::abs(decoded[i] - values[i]), nearest * 1.0001f + 1e-9f);
            EXPECT_LE(nearest, 1.1f * grid.scale) << "the grid reaches the extremes";
          }
        }
      }
    }
  }
}

TEST(Codes, OfZerosAndTinyValuesAreZeros) {
  for (const bool symmetric : {true, false}) {
    for (const float tiny : {0.f, 1e-12f}) {
      const CodeScheme scheme{4, 32, symmetric, DType::kF16};
      const std::vector<float> values(32, tiny);
      const CodedMatrix matrix = Encode(values, 1, 32, {}, scheme, 1);
      EXPECT_GT(matrix.grids[0].scale, 0.f);
      for (const float value : Decode(matrix)) EXPECT_EQ(value, 0.f);
    }
  }
}

TEST(Codes, ShrunkGroupsClip) {
  const std::vector<float> values = RandomValues(64, 3);
  const CodeScheme scheme{4, 32, true, DType::kF32};
  const std::vector<float> shrinks = {0.5f, 1.f};
  const CodedMatrix clipped = Encode(values, 1, 64, shrinks, scheme, 1);
  const CodedMatrix whole = Encode(values, 1, 64, {}, scheme, 1);
  EXPECT_FLOAT_EQ(clipped.grids[0].scale, 0.5f * whole.grids[0].scale);
  EXPECT_EQ(clipped.grids[1].scale, whole.grids[1].scale);
  std::vector<float> rounded(32);
  RoundTo(clipped.grids[0], scheme, std::span(values).first(32), rounded.data());
  const std::vector<float> decoded = Decode(clipped);
  EXPECT_TRUE(std::equal(rounded.begin(), rounded.end(), decoded.begin()));
}

TEST(Codes, DoNotDependOnThreads) {
  const std::vector<float> values = RandomValues(7 * 96, 5);
  const CodeScheme scheme{4, 32, false, DType::kBF16};
  const CodedMatrix one = Encode(values, 7, 96, {}, scheme, 1);
  for (const int threads : {2, 3, 64}) {
    EXPECT_EQ(Encode(values, 7, 96, {}, scheme, threads).codes, one.codes);
  }
}

}  // namespace
}  // namespace kuiper
