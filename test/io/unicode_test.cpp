// Compares every code point, in context, with Hugging Face's `tokenizers`: test/data/unicode.json
// is made by tools/make_unicode_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "kuiper/io/nfc.h"
#include "kuiper/io/normalizer.h"
#include "kuiper/io/split_regex.h"
#include "kuiper/io/tokenizer.h"
#include "kuiper/io/utf8.h"
#include "kuiper/io/word_split.h"
#include "test/io/io_test_util.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using nlohmann::json;

json Goldens() {
  return json::parse(test::ReadText(test::Source("test/data/unicode.json")));
}

uint32_t Crc32(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made;
    for (uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) {
        made[i] = (made[i] >> 1) ^ ((made[i] & 1) != 0 ? 0xEDB88320u : 0u);
      }
    }
    return made;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = table[(crc ^ static_cast<uint8_t>(c)) & 255] ^ crc >> 8;
  return ~crc;
}

// Appends the result for a character to the text.
using Answer = std::function<void(const std::string& character, std::string* text)>;

// Compares the CRCs of the results of every 4096 code points with `expected`.
void ExpectPerBlock(const json& expected, const Answer& answer, size_t num_blocks = 0x110) {
  constexpr char32_t kBlock = 0x1000;
  for (size_t block = 0; block < std::min(num_blocks, expected.size()); ++block) {
    std::string text, character;
    for (char32_t c = block * kBlock; c < (block + 1) * kBlock; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      character.clear();
      AppendUtf8(c, &character);
      answer(character, &text);
    }
    EXPECT_EQ(Crc32(text), expected[block].get<uint32_t>()) << std::hex << block * kBlock;
  }
}

// A text in which a character replaces each X.
class Context {
 public:
  explicit Context(std::string context) : context_(std::move(context)) {}

  const std::string& With(const std::string& character) {
    text_.clear();
    for (const char c : context_) {
      if (c == 'X') {
        text_ += character;
      } else {
        text_ += c;
      }
    }
    return text_;
  }

 private:
  std::string context_, text_;
};

std::vector<std::string_view> Split(const WordSplit& splitter, std::string_view text) {
  std::vector<std::string_view> parts;
  splitter.Split(text, &parts);
  return parts;
}

std::vector<std::string_view> Split(const SplitRegex& splitter, std::string_view text) {
  std::vector<SplitPart> parts;
  splitter.Cut(text, &parts);
  std::vector<std::string_view> texts;
  for (const SplitPart& part : parts) texts.push_back(part.text);
  return texts;
}

class KnownPattern : public ::testing::TestWithParam<const char*> {};

TEST_P(KnownPattern, SplitsEveryCodePointAsHuggingFace) {
  const json goldens = Goldens();
  Context context(goldens["context"]);
  const json& expected = goldens["splits"][GetParam()];
  const auto splitter = WordSplit::ForPattern(goldens["patterns"][GetParam()].get<std::string>());
  ASSERT_TRUE(splitter.has_value());
  ASSERT_EQ(expected.size(), 0x110u);
  std::vector<std::string_view> parts;
  ExpectPerBlock(expected, [&](const std::string& character, std::string* text) {
    parts.clear();
    splitter->Split(context.With(character), &parts);
    for (const auto part : parts) text->append(part).push_back('\0');
  });
}

INSTANTIATE_TEST_SUITE_P(Patterns, KnownPattern,
                         ::testing::Values("gpt2", "qwen2", "qwen3.5", "llama3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '.');
                           return name;
                         });

TEST(EveryCodePoint, HasHuggingFacesNormalForm) {
  const json goldens = Goldens();
  for (const auto& [texts, answers] : {std::pair{"context", "nfc"}, {"context_alone", "alone"}}) {
    SCOPED_TRACE(texts);
    Context context(goldens[texts]);
    ASSERT_EQ(goldens[answers].size(), 0x110u);
    const std::vector<NormalizerStep> steps(1);
    std::string storage;
    ExpectPerBlock(goldens[answers], [&](const std::string& character, std::string* text) {
      storage.clear();
      text->append(Normalize(steps, context.With(character), &storage));
    });
  }
}

TEST(EveryCodePoint, JoinsMarksAsHuggingFaceJoinsThem) {
  const json goldens = Goldens();
  const std::string marks = goldens["marks"];
  ASSERT_GT(marks.size(), 100u);
  ASSERT_EQ(goldens["pairs"].size(), 0x12u);
  ExpectPerBlock(goldens["pairs"], [&](const std::string& character, std::string* all) {
    std::string text;
    for (std::string_view rest = marks; !rest.empty();) {
      const int size = NextUtf8(rest).num_bytes;
      text.append(character).append(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    *all += Nfc(text);
  });
}

TEST(EveryCodePoint, HasTheIdsOfHuggingFace) {
  constexpr char kQwen3[] = "tokenizers/qwen3/tokenizer.json";
  KU_REQUIRE_SHARED(kQwen3);
  const auto tokenizer = test::LoadTokenizer(test::Shared(kQwen3));
  ASSERT_NE(tokenizer, nullptr);
  const json goldens = Goldens();
  Context context(goldens["context"]);
  ASSERT_EQ(goldens["ids"].size(), 0x110u);
  const Answer ids = [&](const std::string& character, std::string* text) {
    for (const int32_t id : tokenizer->Encode(context.With(character))) {
      text->append(std::to_string(id)).push_back('\0');
    }
  };
  // Nothing is assigned from 40000 to E0000, and all code points above are alike; splits and normal
  // forms are compared there as well.
  constexpr size_t kPlanesWithText = 0x40;
  ExpectPerBlock(goldens["ids"], ids, kPlanesWithText);
}

// Consecutive marks have an order and several of them join a letter; unassigned code points stay.
TEST(Nfc, OfWholeTexts) {
  EXPECT_EQ(Nfc(""), "");
  EXPECT_EQ(Nfc("plain"), "plain");
  EXPECT_EQ(Nfc("a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(Nfc("\u0301e\u0301"), "\u0301\u00E9");
  EXPECT_EQ(Nfc("\u1112\u1161\u11AB\uAE00"), "\uD55C\uAE00");
  EXPECT_EQ(Nfc("\u6F22\u302C\u302A"), "\u6F22\u302A\u302C");
  EXPECT_EQ(Nfc("\u212B\uF900"), "\u00C5\u8C48");
}

// Compares WordSplit with PCRE2 on random text that all Unicode versions treat alike.
TEST(WordSplit, EqualsTheRegularExpression) {
  const json goldens = Goldens();
  const std::vector<std::string> units = {
      "a",  "Z",      "'",      "S",      "t",      "l",      "re", "VE",        " ",
      " ",  "\t",     "\n",     "\r",     "1",      "22",     ".",  "(",         "\u00E9",
      "漢", "\u0301", "\u3000", "\u00A0", "\u017F", "\u0660", "_",  "\U0001F600"};
  for (const auto& [name, pattern] : goldens["patterns"].items()) {
    const auto by_hand = WordSplit::ForPattern(pattern.get<std::string>());
    const auto regex = SplitRegex::Compile("(?:" + pattern.get<std::string>() + ")");
    ASSERT_TRUE(by_hand.has_value() && regex.ok()) << name;
    std::mt19937 random(1);
    for (int i = 0; i < 20000; ++i) {
      std::string text;
      for (int n = static_cast<int>(random() % 12); n >= 0; --n) {
        text += units[random() % units.size()];
      }
      ASSERT_EQ(Split(*by_hand, text), Split(*regex, text)) << name << ": " << json(text);
    }
  }
}

TEST(WordSplit, KnowsNoOtherPattern) {
  EXPECT_FALSE(WordSplit::ForPattern("").has_value());
  EXPECT_FALSE(WordSplit::ForPattern("\\p{L}+").has_value());
}

}  // namespace
}  // namespace kuiper
