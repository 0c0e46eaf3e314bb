// Text of an answer while it is generated: stop strings, held-back text, the reasoning budget.
#include "kuiper/engine/answer_stream.h"

#include <gtest/gtest.h>

#include "test/test_data.h"

namespace kuiper {
namespace {

class AnswerStreamTest : public ::testing::Test {
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
    AnswerStream stream(tokenizer_.get(), request);
    Result result;
    auto take = [&](const AnswerStream::Delta& delta) {
      result.text += delta.text;
      result.reasoning += delta.reasoning;
      result.stopped |= delta.stopped;
      if (!delta.text.empty()) result.pieces.push_back(delta.text);
    };
    for (int32_t id : tokenizer_->EncodeWithSpecials(answer)) {
      ++result.tokens;
      take(stream.Push(id));
      if (result.stopped) break;
    }
    take(stream.Finish());
    return result;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(AnswerStreamTest, WithoutStopStringsTextComesAtOnce) {
  const std::string answer = "Hello, this is a test: 12 + 34 = 46. 你好！";
  const Result r = Run({}, answer);
  EXPECT_EQ(r.text, answer);
  EXPECT_FALSE(r.stopped);
  EXPECT_GT(r.pieces.size(), 10u);
}

// Wherever the stop string lies relative to the token boundaries, the text ends right before it.
TEST_F(AnswerStreamTest, StopStringsMayCrossTokenBoundaries) {
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

TEST_F(AnswerStreamTest, TextThatOnlyBeginsAStopStringIsGivenBack) {
  Request request;
  request.stop = {"END OF TEXT"};
  const Result r = Run(request, "The END OF TEX");
  EXPECT_FALSE(r.stopped);
  EXPECT_EQ(r.text, "The END OF TEX");
}

TEST_F(AnswerStreamTest, TheFirstOfSeveralStopStringsWins) {
  Request request;
  request.stop = {"four", "two", ""};
  EXPECT_EQ(Run(request, "one two three four").text, "one ");
}

TEST_F(AnswerStreamTest, StopStringsInsideReasoningDoNotCount) {
  Request request;
  request.split_thinking = true;
  request.stop = {"stop"};
  const Result r = Run(request, "<think>\nI stop here\n</think>\n\nanswer, stop now");
  EXPECT_EQ(r.reasoning, "I stop here");
  EXPECT_EQ(r.text, "answer, ");
  EXPECT_TRUE(r.stopped);
}

TEST_F(AnswerStreamTest, SpentReasoningBudgetForcesTheEndOfTheBlock) {
  Request request;
  request.split_thinking = true;
  request.reasoning_budget = 3;
  AnswerStream stream(tokenizer_.get(), request);
  const auto close = tokenizer_->TokenId("</think>");
  ASSERT_TRUE(close.has_value());
  EXPECT_FALSE(stream.ForcedToken().has_value());
  stream.Push(*tokenizer_->TokenId("<think>"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(stream.ForcedToken().has_value()) << i;
    stream.Push(tokenizer_->Encode("7")[0]);
  }
  EXPECT_EQ(stream.ForcedToken(), close);
  stream.Push(*close);
  EXPECT_FALSE(stream.ForcedToken().has_value());
  EXPECT_EQ(stream.reasoning_tokens(), 3);
}

TEST_F(AnswerStreamTest, WithoutATokenizerThereIsNoText) {
  AnswerStream stream(nullptr, {});
  EXPECT_EQ(stream.Push(5).text, "");
  EXPECT_EQ(stream.Finish().text, "");
}

}  // namespace
}  // namespace kuiper
