// Text of an answer while it is generated: stop strings, held-back text, the reasoning budget.
#include "kuiper/engine/text_assembler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kuiper/engine/reasoning_budget.h"
#include "kuiper/io/token_stream.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

class TextAssemblerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::Load(test::Source("demo/models/tiny-qwen3"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
  }

  struct Result {
    std::string text;
    std::string reasoning;
    std::vector<std::string> pieces;
    bool stopped = false;
    int tokens = 0;  // pushed until the stop
  };

  Result Run(const Request& request, const std::string& answer) {
    TextAssembler assembler(tokenizer_.get(), request);
    Result result;
    auto take = [&](const TextAssembler::Delta& delta) {
      result.text += delta.text;
      result.reasoning += delta.reasoning;
      result.stopped |= delta.stopped;
      if (!delta.text.empty()) result.pieces.push_back(delta.text);
    };
    for (int32_t id : tokenizer_->EncodeWithSpecials(answer)) {
      ++result.tokens;
      take(assembler.Push(id));
      if (result.stopped) break;
    }
    take(assembler.Finish());
    return result;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TextAssemblerTest, WithoutStopStringsTextComesAtOnce) {
  const std::string answer = "Hello, this is a test: 12 + 34 = 46. 你好！";
  const Result r = Run({}, answer);
  EXPECT_EQ(r.text, answer);
  EXPECT_FALSE(r.stopped);
  EXPECT_GT(r.pieces.size(), 10u);
}

// Wherever the stop string lies relative to the token boundaries, the text ends right before it.
TEST_F(TextAssemblerTest, StopStringsMayCrossTokenBoundaries) {
  const std::string answer = "one, two, three: 1234567 and 你好世界 done";
  for (size_t begin = 0; begin + 3 <= answer.size(); ++begin) {
    for (const size_t length : {3u, 6u, 11u}) {
      if (begin + length > answer.size()) continue;
      const std::string stop = answer.substr(begin, length);
      Request request;
      request.stop = {"never there", stop};
      const Result r = Run(request, answer);
      if ((static_cast<unsigned char>(stop[0]) & 0xC0) == 0x80) continue;  // half a character
      EXPECT_TRUE(r.stopped) << "stop '" << stop << "'";
      EXPECT_EQ(r.text, answer.substr(0, answer.find(stop))) << "stop '" << stop << "'";
    }
  }
}

TEST_F(TextAssemblerTest, TextThatOnlyBeginsAStopStringIsGivenBack) {
  Request request;
  request.stop = {"END OF TEXT"};
  const Result r = Run(request, "The END OF TEX");
  EXPECT_FALSE(r.stopped);
  EXPECT_EQ(r.text, "The END OF TEX");
}

// A stop string counts if it ends after the first min_new_tokens tokens; meanwhile text is
// delivered.
TEST_F(TextAssemblerTest, StopStringsOfTheFirstTokensDoNotCount) {
  const std::string answer = "one two, one two, one two, end";
  const std::vector<int32_t> ids = tokenizer_->EncodeWithSpecials(answer);
  Request request;
  request.stop = {"two", ", one"};
  size_t before = 0;
  for (int least = 0; least <= static_cast<int>(ids.size()); ++least) {
    request.min_new_tokens = least;
    // The first stop string that extends past the text of the first tokens.
    const size_t exempt =
        DecodeTokens(*tokenizer_, std::vector<int32_t>(ids.begin(), ids.begin() + least)).size();
    size_t begin = std::string::npos;
    for (const std::string& stop : request.stop) {
      size_t at = answer.find(stop);
      while (at != std::string::npos && at + stop.size() <= exempt) at = answer.find(stop, at + 1);
      begin = std::min(begin, at);
    }
    const Result r = Run(request, answer);
    EXPECT_EQ(r.stopped, begin != std::string::npos) << least;
    EXPECT_EQ(r.text, answer.substr(0, begin)) << least;
    EXPECT_GE(r.text.size(), before);
    before = r.text.size();
  }
}

TEST_F(TextAssemblerTest, TheFirstOfSeveralStopStringsWins) {
  Request request;
  request.stop = {"four", "two", ""};
  EXPECT_EQ(Run(request, "one two three four").text, "one ");
}

// "xab" may become "xabc" or "abd". All of it is held back, whichever is listed first, and no part
// of the stop string found is ever delivered.
TEST_F(TextAssemblerTest, TheLongestBeginningOfAStopStringIsHeldBack) {
  std::vector<std::string> stops = {"abd", "bz", "xabc"};
  do {
    Request request;
    request.stop = stops;
    for (const std::string& stop : stops) {
      const Result r = Run(request, "12 xab" + stop);
      EXPECT_EQ(r.text, "12 xab") << stop;
      EXPECT_TRUE(r.stopped);
    }
    EXPECT_EQ(Run(request, "12 xabc").text, "12 ");
    EXPECT_EQ(Run(request, "12 xabd").text, "12 x");
    EXPECT_EQ(Run(request, "12 xabz").text, "12 xa");
    TextAssembler assembler(tokenizer_.get(), request);
    std::string shown;
    for (const int32_t id : tokenizer_->Encode("12 xab")) shown += assembler.Push(id).text;
    EXPECT_EQ(shown, "12 ");
    EXPECT_EQ(assembler.Finish().text, "xab");
  } while (std::next_permutation(stops.begin(), stops.end()));
  Request request;
  request.stop = {"112"};  // "11" begins it, and so does its last "1"
  const Result r = Run(request, "x1112");
  EXPECT_EQ(r.text, "x1");
  EXPECT_TRUE(r.stopped);
}

TEST_F(TextAssemblerTest, StopStringsInsideReasoningDoNotCount) {
  Request request;
  request.split_thinking = true;
  request.stop = {"stop"};
  const Result r = Run(request, "<think>\nI stop here\n</think>\n\nanswer, stop now");
  EXPECT_EQ(r.reasoning, "I stop here");
  EXPECT_EQ(r.text, "answer, ");
  EXPECT_TRUE(r.stopped);
}

TEST_F(TextAssemblerTest, SpentReasoningBudgetForcesTheEndOfTheBlock) {
  Request request;
  request.split_thinking = true;
  request.reasoning_budget = 3;
  TextAssembler assembler(tokenizer_.get(), request);
  const ReasoningBudget budget(tokenizer_.get(), request);
  const auto close = tokenizer_->TokenId("</think>");
  ASSERT_TRUE(close.has_value());
  EXPECT_FALSE(budget.ForcedToken(assembler).has_value());
  assembler.Push(*tokenizer_->TokenId("<think>"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(budget.ForcedToken(assembler).has_value()) << i;
    assembler.Push(tokenizer_->Encode("7")[0]);
  }
  EXPECT_EQ(budget.ForcedToken(assembler), close);
  assembler.Push(*close);
  EXPECT_FALSE(budget.ForcedToken(assembler).has_value());
  EXPECT_EQ(assembler.reasoning_tokens(), 3);
}

TEST_F(TextAssemblerTest, AutoLeavesHalfOfTheTokensToTheAnswer) {
  const auto spent_after = [&](int max_new_tokens, int max_context) {
    Request request;
    request.prompt = {1, 2, 3, 4};
    request.split_thinking = true;
    request.reasoning_budget = kAutoReasoningBudget;
    request.max_new_tokens = max_new_tokens;
    TextAssembler assembler(tokenizer_.get(), request);
    const ReasoningBudget budget(tokenizer_.get(), request, max_context);
    assembler.Push(*tokenizer_->TokenId("<think>"));
    int pushed = 0;
    for (; !budget.ForcedToken(assembler).has_value() && pushed < 100; ++pushed) {
      assembler.Push(tokenizer_->Encode("7")[0]);
    }
    return pushed;
  };
  EXPECT_EQ(spent_after(20, 1000), 10);
  EXPECT_EQ(spent_after(1000, 24), 10) << "the context ends the answer";
}

TEST_F(TextAssemblerTest, WithoutATokenizerThereIsNoText) {
  TextAssembler assembler(nullptr, {});
  EXPECT_EQ(assembler.Push(5).text, "");
  EXPECT_EQ(assembler.Finish().text, "");
}

}  // namespace
}  // namespace kuiper
