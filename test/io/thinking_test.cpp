#include "kuiper/io/thinking.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "test/io/fake_tokenizer.h"

namespace kuiper {
namespace {

using test::FakeTokenizer;

struct Result {
  std::string reasoning, answer;
  bool has_block = false;
  int reasoning_tokens = 0;
};

// Pushes all tokens; those spelled exactly like a tag are added tokens if `tags_are_tokens`.
Result SplitTokens(const std::vector<std::string>& tokens, bool tags_are_tokens,
                   bool starts_inside = false, bool split = true) {
  std::vector<std::string> vocabulary = tokens;
  vocabulary.insert(vocabulary.end(), {"<think>", "</think>"});
  FakeTokenizer tokenizer(vocabulary);
  const int32_t open = static_cast<int32_t>(tokens.size()), close = open + 1;
  if (tags_are_tokens) tokenizer.added = {open, close};
  ThinkingSplitter splitter(tokenizer, split, starts_inside);
  Result result;
  const auto take = [&](const ThinkingSplitter::Delta& delta) {
    result.reasoning += delta.reasoning;
    result.answer += delta.answer;
  };
  for (int32_t i = 0; i < open; ++i) {
    take(splitter.Push(tokens[i] == "<think>" ? open : tokens[i] == "</think>" ? close : i));
  }
  take(splitter.Finish());
  result.has_block = splitter.has_block();
  result.reasoning_tokens = splitter.reasoning_tokens();
  return result;
}

class ThinkingSplit : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Tags, ThinkingSplit, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "AreTokens" : "AreText"; });

TEST_P(ThinkingSplit, TakesTagsAndTheirNewlinesAway) {
  const Result r = SplitTokens(
      {"<think>", "\n", "one\n", "\ntwo", "\n", "</think>", "\n\n", "fo", "ur\n"}, GetParam());
  EXPECT_EQ(r.reasoning, "one\n\ntwo");
  EXPECT_EQ(r.answer, "four\n");
  EXPECT_TRUE(r.has_block);
}

TEST_P(ThinkingSplit, WithoutABlockEverythingIsAnswer) {
  const Result r = SplitTokens({" 4", ", not", " <think>", "5", "</think>"}, GetParam());
  EXPECT_EQ(r.answer, " 4, not <think>5</think>");
  EXPECT_EQ(r.reasoning, "");
  EXPECT_FALSE(r.has_block);
}

TEST_P(ThinkingSplit, EmptyBlock) {
  const Result r = SplitTokens({"<think>", "\n\n", "</think>", "\n\n", "4"}, GetParam());
  EXPECT_EQ(r.reasoning, "");
  EXPECT_EQ(r.answer, "4");
  EXPECT_TRUE(r.has_block);
}

TEST_P(ThinkingSplit, WhiteSpaceBeforeTheBlockIsDropped) {
  const Result r = SplitTokens({"\n", "<think>", "a", "</think>", "b"}, GetParam());
  EXPECT_EQ(r.reasoning, "a");
  EXPECT_EQ(r.answer, "b");
}

TEST_P(ThinkingSplit, AnUnclosedBlockIsReasoning) {
  const Result r = SplitTokens({"<think>", "\n", "so", " on", "\n"}, GetParam());
  EXPECT_EQ(r.reasoning, "so on");
  EXPECT_EQ(r.answer, "");
}

TEST_P(ThinkingSplit, MayStartInsideTheBlock) {
  const Result r = SplitTokens({"so", "\n", "</think>", "\n\n", "4"}, GetParam(), true);
  EXPECT_EQ(r.reasoning, "so");
  EXPECT_EQ(r.answer, "4");
}

TEST_P(ThinkingSplit, CanBeSwitchedOff) {
  const Result r = SplitTokens({"<think>", "\n", "a", "</think>"}, GetParam(), false, false);
  EXPECT_EQ(r.answer, "<think>\na</think>");
  EXPECT_FALSE(r.has_block);
}

TEST_P(ThinkingSplit, ABrokenCharacterEndsAtTheTag) {
  const Result r = SplitTokens({"<think>", "a\xE4\xBD", "</think>", "b"}, GetParam());
  EXPECT_EQ(r.reasoning, "a\uFFFD");
  EXPECT_EQ(r.answer, "b");
}

TEST(ThinkingSplitter, TagsSpelledByOtherTokensCountOnlyAsText) {
  const std::vector<std::string> tokens = {"<th", "ink>", "a</", "thi", "nk>\nb", "</thi"};
  const Result text = SplitTokens(tokens, false);
  EXPECT_EQ(text.reasoning, "a");
  EXPECT_EQ(text.answer, "b</thi");
  const Result ids = SplitTokens(tokens, true);
  EXPECT_EQ(ids.answer, "<think>a</think>\nb</thi");
}

TEST(ThinkingSplitter, CountsTheTokensBetweenTheTags) {
  EXPECT_EQ(SplitTokens({"<think>", "\n", "a", "</think>", "b"}, true).reasoning_tokens, 2);
}

TEST(ThinkingSplitter, ReasoningStreamsAtOnce) {
  FakeTokenizer tokenizer({"<think>", "</think>", "word", "\n"});
  tokenizer.added = {0, 1};
  ThinkingSplitter splitter(tokenizer);
  splitter.Push(0);
  EXPECT_TRUE(splitter.inside());
  EXPECT_EQ(splitter.Push(2).reasoning, "word");
  EXPECT_EQ(splitter.Push(3).reasoning, "");
  EXPECT_EQ(splitter.Push(2).reasoning, "\nword");
  splitter.Push(1);
  EXPECT_FALSE(splitter.inside());
  EXPECT_EQ(splitter.Push(2).answer, "word");
}

TEST(SplitThinking, AgreesWithTheTemplate) {
  const ThinkingText both = SplitThinking("<think>\nsimple math\n</think>\n\n2\n");
  EXPECT_EQ(both.reasoning, "simple math");
  EXPECT_EQ(both.answer, "2\n");
  EXPECT_TRUE(both.closed);
  const ThinkingText none = SplitThinking("2 <think>");
  EXPECT_FALSE(none.reasoning.has_value());
  EXPECT_EQ(none.answer, "2 <think>");
  const ThinkingText open = SplitThinking("\n<think>\nso on\n");
  EXPECT_EQ(open.reasoning, "so on");
  EXPECT_EQ(open.answer, "");
  EXPECT_FALSE(open.closed);
}

}  // namespace
}  // namespace kuiper
