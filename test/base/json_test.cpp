#include "kuiper/base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "kuiper/base/to_json.h"

namespace kuiper {
namespace {

std::string ErrorOf(const std::string& text) {
  const auto parsed = ParseJson(text, StatusCode::kInput, "x");
  if (parsed.ok()) return "parsed";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInput);
  return parsed.status().message();
}

TEST(Json, NamesTheByteOfAnError) {
  EXPECT_EQ(ErrorOf(""), "x: invalid JSON at byte 1");
  EXPECT_EQ(ErrorOf("{\"a\": 1,}"), "x: invalid JSON at byte 9");
  EXPECT_EQ(ErrorOf("[1] 2"), "x: invalid JSON at byte 5");
  EXPECT_EQ(ErrorOf("[\n    1,\n    x]"), "x: invalid JSON at byte 14");
  EXPECT_EQ(ErrorOf("{\n  \"a\n  b\": 1}"), "x: invalid JSON at byte 7");
  EXPECT_EQ(ErrorOf("[\n   "), "x: invalid JSON at byte 6");
  EXPECT_EQ(ErrorOf("[tr\n  ue]"), "x: invalid JSON at byte 4");
  EXPECT_EQ(ErrorOf("[1e999]"), "x: invalid JSON at byte 6");
  EXPECT_EQ(ErrorOf("\"\xff\""), "x: invalid JSON at byte 2");
}

TEST(Json, BoundsTheNestingOfTreesAndEvents) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(ErrorOf(nested(64)), "parsed");
  EXPECT_EQ(ErrorOf(nested(65)), "x: nested deeper than 64");
  EXPECT_TRUE(JsonEvents().Read(nested(64), StatusCode::kInput, "x").ok());
  EXPECT_FALSE(JsonEvents().Read(nested(65), StatusCode::kInput, "x").ok());
}

TEST(Json, ARepeatedKeyTakesItsLastValue) {
  const JsonNode root = ParseJson(R"({"a": 1, "b": 2, "a": 3})", StatusCode::kInput, "x").value();
  EXPECT_EQ(PythonJson(root), R"({"a": 3, "b": 2})");
}

TEST(Json, NumbersKeepTheirValue) {
  const auto number = [](const char* text) {
    return ParseJson(text, StatusCode::kInput, "x").value();
  };
  EXPECT_EQ(number("9223372036854775807").AsInt(), INT64_MAX);
  EXPECT_EQ(number("9223372036854775808").AsInt(), std::nullopt);
  EXPECT_EQ(number("18446744073709551616").AsDouble(), 0x1p64);
  EXPECT_EQ(number("18446744073709551616").text, "18446744073709551616");
  EXPECT_EQ(number("-3").AsInt(), -3);
  EXPECT_EQ(number("2.0").AsInt(), std::nullopt);
  for (const double value : {0.1, 1e-6, 1e16, 1e300, -2.5}) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    EXPECT_EQ(number(text).AsDouble(), value);
  }
  EXPECT_EQ(number("\"1\"").AsDouble(), std::nullopt);
}

TEST(Json, ACopyIsWrittenAsIfTheWriterHadReadTheText) {
  const std::string text =
      R"({"z": [null, true, false, {}, []], "a": "\u00e9\ud83d\ude00\u0001\/\"",
    "numbers": [0, -0, -7, 9223372036854775807, -9223372036854775808, 9223372036854775808,
    18446744073709551615, 18446744073709551616, -9223372036854775809, 1.0, -0.0, 1e15, 1e16,
    123456789012345678901234567890, 1e5, 1e-4, 1e-5, 0.1, 5e-324, 1e-400, 1.7976931348623157e308,
    0.30000000000000004], "twice": 1, "": 2, "twice": 3})";
  const JsonNode root = ParseJson(text, StatusCode::kInput, "x").value();
  EXPECT_EQ(ToJson(root).dump(), nlohmann::ordered_json::parse(text).dump());
}

}  // namespace
}  // namespace kuiper
