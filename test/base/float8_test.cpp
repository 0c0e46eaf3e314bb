// Compares with PyTorch: test/data/float8.json is made by tools/make_float8_goldens.py.
#include "kuiper/base/float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kuiper/base/dtype.h"
#include "kuiper/base/json.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

struct E4M3 {
  using Type = Float8E4M3;
  static constexpr const char* kName = "e4m3";
  static constexpr float kMax = 448.0f;
  static Type From(float x) { return ToFloat8E4M3(x); }
};
struct E5M2 {
  using Type = Float8E5M2;
  static constexpr const char* kName = "e5m2";
  static constexpr float kMax = 57344.0f;
  static Type From(float x) { return ToFloat8E5M2(x); }
};

template <typename Format>
class Float8Test : public ::testing::Test {
 protected:
  static float Value(uint8_t bits) { return ToFloat(typename Format::Type{bits}); }
  static uint8_t Code(float x) { return Format::From(x).bits; }
  // Returns PyTorch's numbers under `key`: bits of FP32 values and codes.
  static std::vector<uint32_t> Golden(const char* key) {
    const std::string text = test::ReadFile(test::Source("test/data/float8.json"));
    const auto json = ParseJson(text, StatusCode::kInternal, "float8.json");
    std::vector<uint32_t> numbers;
    if (!json.ok()) return numbers;
    for (const JsonNode& item : json->Find(Format::kName)->Find(key)->items) {
      numbers.push_back(static_cast<uint32_t>(*item.AsInt()));
    }
    return numbers;
  }
};
using Formats = ::testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Float8Test, Formats);

TYPED_TEST(Float8Test, EveryCodeHasTheValueOfPyTorch) {
  const std::vector<uint32_t> values = this->Golden("values");
  ASSERT_EQ(values.size(), 256u);
  for (int code = 0; code < 256; ++code) {
    const float expected = std::bit_cast<float>(values[code]);
    const float actual = this->Value(static_cast<uint8_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(actual), values[code]) << code;
      EXPECT_EQ(this->Code(actual), code) << "the round trip";
    }
  }
}

TYPED_TEST(Float8Test, RoundsAsPyTorch) {
  const std::vector<uint32_t> pairs = this->Golden("rounding");
  ASSERT_GT(pairs.size(), 800u);
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const float x = std::bit_cast<float>(pairs[i]);
    ASSERT_EQ(this->Code(x), pairs[i + 1]) << x;
    ASSERT_EQ(this->Code(-x), pairs[i + 1] | 0x80u) << -x;
  }
}

TYPED_TEST(Float8Test, WhatIsFiniteSaturates) {
  constexpr float kMax = TypeParam::kMax;
  const uint8_t max = this->Code(kMax);
  EXPECT_EQ(this->Value(max), kMax);
  for (float x : {std::nextafter(kMax, INFINITY), 1.05f * kMax, 2 * kMax, 1e30f,
                  std::numeric_limits<float>::max()}) {
    EXPECT_EQ(this->Code(x), max) << x;
    EXPECT_EQ(this->Code(-x), max | 0x80) << -x;
  }
}

TYPED_TEST(Float8Test, WhatIsNotFiniteStaysSo) {
  for (uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_TRUE(std::isnan(this->Value(this->Code(std::bit_cast<float>(bits))))) << bits;
  }
  EXPECT_FALSE(std::isfinite(this->Value(this->Code(INFINITY))));
  EXPECT_FALSE(std::isfinite(this->Value(this->Code(-INFINITY))));
}

TEST(Float8, InfinityIsNanWhereThereIsNone) {
  EXPECT_EQ(ToFloat8E4M3(INFINITY).bits, 0x7F);
  EXPECT_EQ(ToFloat8E4M3(-INFINITY).bits, 0xFF);
  EXPECT_EQ(ToFloat(ToFloat8E5M2(-INFINITY)), -INFINITY);
}

TEST(Float8, TypesHaveTheirNames) {
  EXPECT_STREQ(DTypeName(DTypeOf<Float8E4M3>::value), "FP8 E4M3");
  EXPECT_STREQ(DTypeName(DTypeOf<Float8E5M2>::value), "FP8 E5M2");
  EXPECT_STREQ(DTypeName(DTypeOf<int8_t>::value), "INT8");
}

}  // namespace
}  // namespace kuiper
