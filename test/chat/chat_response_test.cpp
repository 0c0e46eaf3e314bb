#include "kuiper/chat/chat_response.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

Completion Answer(const std::string& text, FinishReason finish) {
  Completion completion;
  completion.text = text;
  completion.tokens = {1, 2, 3};
  completion.prompt_tokens = 5;
  completion.cached_tokens = 4;
  completion.prefill_ms = 1.5;
  completion.finish = finish;
  return completion;
}

TEST(ChatResponse, HasOpenAisForm) {
  Completion thought = Answer("b\"", FinishReason::kContext);
  thought.has_reasoning = true;
  thought.reasoning = "because";
  EXPECT_EQ(
      ChatResponse(true, "7", "m", {Answer("a\n", FinishReason::kStop), thought}),
      R"({"id":"chatcmpl-7","object":"chat.completion","created":0,"model":"m","choices":[)"
      R"({"index":0,"message":{"role":"assistant","content":"a\n"},"logprobs":null,)"
      R"("finish_reason":"stop"},)"
      R"({"index":1,"message":{"role":"assistant","content":"b\"","reasoning_content":"because"},)"
      R"("logprobs":null,"finish_reason":"length"}],)"
      R"("usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11}})");
  EXPECT_EQ(ChatResponse(false, "7", "m", {Answer("x", FinishReason::kStopString)}),
            R"({"id":"cmpl-7","object":"text_completion","created":0,"model":"m","choices":[)"
            R"({"index":0,"text":"x","logprobs":null,"finish_reason":"stop"}],)"
            R"("usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}})");
}

}  // namespace
}  // namespace kuiper
