#include "kuiper/base/plain_json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kuiper {
namespace {

std::optional<std::string> StringOf(std::string_view text) {
  std::string_view string;
  return PlainJson(text).String(&string) ? std::optional(std::string(string)) : std::nullopt;
}

std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t number;
  return PlainJson(text).Unsigned(&number) ? std::optional(number) : std::nullopt;
}

TEST(PlainJson, TakesStringsOfCharactersOfTwoBytesWithoutEscapes) {
  EXPECT_EQ(StringOf(" \t\r\n\"a b\""), "a b");
  EXPECT_EQ(StringOf("\"\""), "");
  EXPECT_EQ(StringOf("\"Ġé\x7f\xDF\xBF\""), "Ġé\x7f\xDF\xBF");
  for (const char* other : {"", "a", "\"", "\"a", "\"a\\n\"", "\"a\nb\"", "\"€\"", "\"\x80\"",
                            "\"\xC1\xBF\"", "\"\xC3\"", "\"\xC3", "\"\xE0\x80\"", "\"\xC3\xC3\""}) {
    EXPECT_EQ(StringOf(other), std::nullopt) << other;
  }
}

TEST(PlainJson, TakesNumbersOfUpToNineDigits) {
  EXPECT_EQ(NumberOf(" 0,"), 0u);
  EXPECT_EQ(NumberOf("999999999"), 999999999u);
  for (const char* other : {"", "-1", "01", "00", "1000000000", "x"}) {
    EXPECT_EQ(NumberOf(other), std::nullopt) << other;
  }
}

TEST(PlainJson, CountsWhatItTook) {
  PlainJson json(R"( : 12 , "a" ])");
  uint64_t number;
  std::string_view string;
  EXPECT_TRUE(json.Mark(':') && json.Unsigned(&number) && json.Mark(',') && json.String(&string));
  EXPECT_EQ(json.num_taken(), 11u);
  EXPECT_FALSE(json.Mark(','));
}

}  // namespace
}  // namespace kuiper
