#include "kuiper/io/token_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kuiper/io/utf8.h"
#include "test/io/fake_tokenizer.h"

namespace kuiper {
namespace {

using test::FakeTokenizer;

std::vector<std::string> Stream(const std::vector<std::string>& tokens) {
  const FakeTokenizer tokenizer(tokens);
  TokenStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (size_t i = 0; i < tokens.size(); ++i) pieces.push_back(stream.Push(static_cast<int>(i)));
  pieces.push_back(stream.Finish());
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(TokenStream, HoldsBackAnEmojiUntilItIsComplete) {
  EXPECT_EQ(Stream({"a\xF0", "\x9F", "\x98", "\x80!"}), (Pieces{"a", "", "", "\U0001F600!", ""}));
}

TEST(TokenStream, SplitsOneTokenOverTwoCharacters) {
  EXPECT_EQ(Stream({"\xE4\xBD", "\xA0\xE5", "\xA5\xBD"}), (Pieces{"", "\u4F60", "\u597D", ""}));
}

TEST(TokenStream, FinishReplacesWhatStaysIncomplete) {
  EXPECT_EQ(Stream({"a\xF0\x9F\x98"}), (Pieces{"a", "\uFFFD"}));
}

TEST(TokenStream, SaysWhichTokensBeginBehindABrokenCharacter) {
  const std::vector<std::string> tokens = {
      "a\xF0", "\x9F", "b", "\xE0", "\x80", "\xE4", "\xBD\x41", "\xEF\xBC\x8C\xE8", "\xEF\xBC\x8C"};
  const std::vector<bool> expected = {false, false, true, false, true, false, false, false, true};
  const FakeTokenizer tokenizer(tokens);
  TokenStream stream(tokenizer);
  for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
    EXPECT_EQ(stream.BreaksOffCharacter(i), expected[i]) << i;
    stream.Push(i);
  }
}

// Expected values from Python: bytes.decode("utf-8", errors="replace").
TEST(TokenStream, ReplacesInvalidBytesAsPythonDoes) {
  const struct {
    std::string bytes, text;
  } cases[] = {
      {"\x80", "\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x9F\x41", "\uFFFD\x41"},
      {"\xF0\x9F\x98\xE4\xBD\xA0", "\uFFFD\u4F60"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xF5\x80", "\uFFFD\uFFFD"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
  };
  for (const auto& item : cases) {
    std::vector<std::string> tokens;
    for (char c : item.bytes) tokens.push_back(std::string(1, c));
    std::string streamed;
    for (const std::string& piece : Stream(tokens)) {
      EXPECT_TRUE(IsValidUtf8(piece));
      streamed += piece;
    }
    EXPECT_EQ(streamed, item.text);
    EXPECT_EQ(ReplaceInvalidUtf8(item.bytes), item.text);
  }
}

TEST(TokenStream, AnyCutOfValidTextGivesTheTextBack) {
  std::mt19937 random(7);
  std::string text;
  for (char32_t c : U"a\u00E9\u0800\uD7FF\uE000\uFFFF\U00010000\U0010FFFF\u4F60z") {
    if (c != 0) AppendUtf8(c, &text);
  }
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> tokens;
    for (size_t pos = 0; pos < text.size();) {
      const size_t count = 1 + random() % 4;
      tokens.push_back(text.substr(pos, count));
      pos += count;
    }
    std::string streamed;
    for (const std::string& piece : Stream(tokens)) {
      EXPECT_TRUE(IsValidUtf8(piece));
      streamed += piece;
    }
    ASSERT_EQ(streamed, text);
  }
}

TEST(TokenStream, LeavesControlTokensAndUnknownIdsOut) {
  FakeTokenizer tokenizer({"a", "<|end|>", "b"});
  tokenizer.special = {1};
  const std::vector<int32_t> ids = {0, 1, 99, -3, 2};
  EXPECT_EQ(DecodeTokens(tokenizer, ids), "ab");
  TokenStream::Options options;
  options.skip_special = false;
  EXPECT_EQ(DecodeTokens(tokenizer, ids, options), "a<|end|>b");
}

TEST(TokenStream, DropsOneLeadingSpaceOfSentencePieceText) {
  FakeTokenizer tokenizer({" Once", " upon"});
  EXPECT_EQ(DecodeTokens(tokenizer, std::vector<int32_t>{0, 1}), " Once upon");
  tokenizer.strips_leading_space = true;
  EXPECT_EQ(DecodeTokens(tokenizer, std::vector<int32_t>{0, 1}), "Once upon");
  TokenStream::Options options;
  options.at_text_start = false;
  EXPECT_EQ(DecodeTokens(tokenizer, std::vector<int32_t>{0, 1}, options), " Once upon");
}

TEST(Utf8, KnowsValidFromInvalid) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("plain ascii text, longer than eight"));
  EXPECT_TRUE(IsValidUtf8("12345678\u00E9\U0001F600"));
  EXPECT_FALSE(IsValidUtf8("12345678\xC3"));
  EXPECT_FALSE(IsValidUtf8("\xED\xA0\x80"));
  EXPECT_FALSE(IsValidUtf8("\xC1\xBF"));
}

}  // namespace
}  // namespace kuiper
