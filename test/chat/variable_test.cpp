#include "kuiper/chat/variable.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

// Returns the error of storing the text; "" on success.
std::string Error(const Variable& variable, const Limits& limits, const std::string& text) {
  return SetVariable(variable, limits, "x", text).message();
}

TEST(Variable, NumbersHaveARange) {
  int count = 0;
  EXPECT_EQ(Error(&count, {1, 8}, "8"), "");
  EXPECT_EQ(count, 8);
  EXPECT_EQ(Error(&count, {1, 8}, "9"), "x: 9 is out of range (must be from 1 to 8)");
  EXPECT_EQ(Error(&count, {1, 8}, "0"), "x: 0 is out of range (must be from 1 to 8)");
  EXPECT_EQ(Error(&count, {.min = 1}, "0"),
            "x: 0 is out of range (must be at least 1 and at most 2147483647)");
  EXPECT_EQ(Error(&count, {}, "2147483648"),
            "x: 2147483648 is out of range (must be at least 0 and at most 2147483647)");
  for (const char* text : {"", " 1", "1 ", "+1", "1.5", "1.", "1.0.0", "0x1", "-"}) {
    EXPECT_EQ(Error(&count, {1, 8}, text), "x: '" + std::string(text) + "' is not a whole number");
  }
  EXPECT_EQ(Error(&count, {.min = 1, .max = 256, .power_of_two = true}, "12"),
            "x: 12 is not a power of two from 1 to 256");
  EXPECT_EQ(count, 8) << "a mistake changes nothing";

  float share = 0;
  EXPECT_EQ(Error(&share, {.max = 1, .above_min = true}, "0"),
            "x: 0 is out of range (must be more than 0 and at most 1)");
  EXPECT_EQ(Error(&share, {.max = 1, .above_min = true}, "1e-3"), "");
  EXPECT_EQ(share, 1e-3f);
  for (const char* text : {"inf", "nan", "1e999", ".", "1,5"}) {
    EXPECT_EQ(Error(&share, {-2, 2}, text), "x: '" + std::string(text) + "' is not a number");
  }
  uint64_t seed = 0;
  EXPECT_EQ(Error(&seed, {}, "18446744073709551615"), "");
  EXPECT_EQ(seed, UINT64_MAX);
  EXPECT_EQ(Error(&count, {1, 8}, "99999999999999999999"),
            "x: '99999999999999999999' is out of range");
  EXPECT_EQ(Error(&seed, {}, "-1"), "x: '-1' is not a whole number from 0 to 2^64-1");
}

TEST(Variable, WholeNumbersMayBeWrittenAsFloats) {
  int count = 0;
  EXPECT_EQ(Error(&count, {1, 8}, "7.0"), "");
  EXPECT_EQ(count, 7);
  EXPECT_EQ(Error(&count, {1, 8}, "9.00"), "x: 9.00 is out of range (must be from 1 to 8)");
  uint64_t seed = 0;
  EXPECT_EQ(Error(&seed, {}, "42.0"), "");
  EXPECT_EQ(seed, 42u);
}

TEST(Variable, NegativesAreAllOnesWhereTheyMayBe) {
  uint64_t seed = 0;
  const Limits limits = {.min = -1};
  for (const char* text : {"-1", "-1.0", "-7", "-9223372036854775808"}) {
    EXPECT_EQ(Error(&seed, limits, text), "");
    EXPECT_EQ(seed, UINT64_MAX);
    EXPECT_EQ(VariableText(&seed, limits), "-1");
    seed = 5;
  }
  for (const char* text : {"-9223372036854775809", "18446744073709551615", "-1.5"}) {
    EXPECT_EQ(Error(&seed, limits, text),
              "x: '" + std::string(text) + "' is not a whole number from -2^63 to 2^64-2");
  }
  EXPECT_EQ(VariableText(&seed, limits), "5");
}

TEST(Variable, SizesAreWrittenWithTheirUnit) {
  for (const char* text : {"1", "1023", "1K", "512M", "3G", "1025M"}) {
    uint64_t bytes = 0;
    EXPECT_EQ(Error(&bytes, {.bytes = true}, text), "");
    EXPECT_EQ(VariableText(&bytes, {.bytes = true}), text);
  }
}

TEST(Variable, AutoStandsForANumberWhereThereIsOne) {
  int count = 5;
  const Limits limits = {.min = -1, .automatic = -2};
  EXPECT_EQ(Error(&count, {.min = -1}, "auto"), "x: 'auto' is not a whole number");
  EXPECT_EQ(Error(&count, limits, "auto"), "");
  EXPECT_EQ(count, -2);
  EXPECT_EQ(VariableText(&count, limits), "auto");
  EXPECT_EQ(VariableText(&count), "-2");
  EXPECT_EQ(Error(&count, limits, "-2"),
            "x: -2 is out of range (must be at least -1 and at most 2147483647)");
  EXPECT_EQ(Error(&count, limits, "7"), "");
  EXPECT_EQ(VariableText(&count, limits), "7");
  EXPECT_EQ(ValueName(&count, limits), "N|auto");
}

TEST(Variable, Sizes) {
  uint64_t bytes = 0;
  const Limits size = {.bytes = true};
  const std::pair<const char*, double> good[] = {
      {"1", 1},         {"1000", 1000},      {"2k", 2048},
      {"3K", 3072},     {"512M", 512 << 20}, {"1.5GiB", 1.5 * (1 << 30)},
      {"4MB", 4 << 20}, {"7B", 7},           {"1Kib", 1024}};
  for (const auto& [text, expected] : good) {
    EXPECT_EQ(Error(&bytes, size, text), "") << text;
    EXPECT_EQ(static_cast<double>(bytes), expected) << text;
  }
  for (const char* text : {"", "M", "B", "1T", "x", "1MM", "GB"}) {
    EXPECT_EQ(Error(&bytes, size, text),
              "x: '" + std::string(text) + "' is not a size (examples: 512M, 2G)");
  }
  for (const char* text : {"0", "0.5", "-1", "1e16", "1000000G"}) {
    EXPECT_EQ(Error(&bytes, size, text), "x: " + std::string(text) +
                                             " is out of range (must be at least 1 byte and at "
                                             "most 1 PB)");
  }
}

TEST(Variable, AWordMayStandForNoValue) {
  std::optional<int64_t> number = 5;
  const Limits limits{.min = 1, .absent = "model"};
  EXPECT_EQ(VariableText(&number, limits), "5");
  ASSERT_TRUE(SetVariable(&number, limits, "--x", "model").ok());
  EXPECT_FALSE(number.has_value());
  EXPECT_EQ(VariableText(&number, limits), "model");
  EXPECT_EQ(ValueName(&number, limits), "N|model");
  ASSERT_TRUE(SetVariable(&number, limits, "--x", "7").ok());
  EXPECT_EQ(number, 7);
  EXPECT_FALSE(SetVariable(&number, limits, "--x", "auto").ok());
  EXPECT_FALSE(SetVariable(&number, {.min = 1}, "--x", "model").ok());
}

TEST(Variable, NamesStandForValues) {
  enum class Kind { kFast, kSmall } kind = Kind::kFast;
  const Variable variable =
      OneOf(&kind, {{"small", Kind::kSmall}, {"fast", Kind::kFast}}, {"huge"});
  EXPECT_EQ(VariableText(variable), "fast");
  EXPECT_EQ(ValueName(variable, {}), "small|fast");
  EXPECT_EQ(Error(variable, {}, "small"), "");
  EXPECT_EQ(kind, Kind::kSmall);
  EXPECT_EQ(Error(variable, {}, "big"), "x: 'big' is not one of small, fast, huge");
  EXPECT_EQ(Error(variable, {}, "huge"), "x huge is not available in this version");
  EXPECT_EQ(kind, Kind::kSmall);
}

TEST(Variable, ListsAndOptionalValues) {
  std::vector<std::string> texts;
  EXPECT_EQ(Error(&texts, {}, "a,b"), "");
  EXPECT_EQ(Error(&texts, {}, ""), "");
  EXPECT_EQ(texts, (std::vector<std::string>{"a,b", ""})) << "each text is one more";
  std::vector<int> numbers = {7};
  EXPECT_EQ(Error(&numbers, {.min = 1}, "3,1"), "");
  EXPECT_EQ(numbers, (std::vector<int>{3, 1})) << "the list is a new one";
  EXPECT_EQ(VariableText(&numbers), "3,1");
  for (const char* text : {"", "3,", ",3", "3,,1", "0", "3;1"}) {
    EXPECT_NE(Error(&numbers, {.min = 1}, text), "") << text;
  }
  EXPECT_EQ(numbers.size(), 2u);
  std::optional<bool> on;
  EXPECT_EQ(VariableText(&on), "");
  EXPECT_TRUE(IsSwitch(&on));
  EXPECT_EQ(Error(&on, {}, "maybe"), "x: 'maybe' is not one of true, false");
  EXPECT_FALSE(on.has_value());
  EXPECT_EQ(Error(&on, {}, "off"), "");
  EXPECT_EQ(on, false);
  std::optional<Device> device;
  EXPECT_EQ(Error(&device, {}, "cuda"), "");
  EXPECT_EQ(VariableText(&device), "cuda:0");
  for (const char* text : {"cuda:", "cuda:-1", "cuda:1024", "gpu", "cuda:1x"}) {
    EXPECT_EQ(Error(&device, {}, text),
              "x: '" + std::string(text) + "' is not one of cpu, simt, cuda:N");
  }
}

TEST(Variable, MapsAreKeysWithNumbers) {
  std::map<int, float> map = {{9, 9.f}};
  const Limits limits{-100, 100};
  EXPECT_EQ(Error(&map, limits, "5:-100,12:2.5"), "");
  EXPECT_EQ(map, (std::map<int, float>{{5, -100.f}, {12, 2.5f}}));
  EXPECT_EQ(VariableText(&map), "5:-100,12:2.5");
  EXPECT_EQ(ValueName(&map, limits), "ID:F,...");
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "x: '' is not a whole number"},
      {"5", "x: '' is not a number"},
      {"5:", "x: '' is not a number"},
      {"5:1,", "x: '' is not a whole number"},
      {"a:1", "x: 'a' is not a whole number"},
      {"-1:1", "x: -1 is out of range (must be at least 0 and at most 2147483647)"},
      {"5:1:2", "x: '1:2' is not a number"},
      {"5:101", "x: 101 is out of range (must be from -100 to 100)"},
      {"5:nan", "x: 'nan' is not a number"},
      {"5:1,05:2", "x: '05' is there twice"}};
  for (const auto& [text, message] : mistakes) EXPECT_EQ(Error(&map, limits, text), message);
  EXPECT_EQ(map.size(), 2u) << "a mistake changes nothing";
}

TEST(Variable, MessagesShowTheBeginningOfLongTexts) {
  int count = 0;
  EXPECT_EQ(Error(&count, {}, std::string(100, 'y')),
            "x: '" + std::string(80, 'y') + "...' is not a whole number");
  EXPECT_EQ(Error(&count, {}, "a\nb\xff"), "x: 'a b\xEF\xBF\xBD' is not a whole number");
}

}  // namespace
}  // namespace kuiper
