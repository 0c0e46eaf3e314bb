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
  completion.seed = 9;
  completion.finish = finish;
  return completion;
}

TEST(ChatResponse, HasOpenAisForm) {
  Completion thought = Answer("b\"", FinishReason::kContext);
  thought.has_reasoning = true;
  thought.reasoning = "because";
  EXPECT_EQ(
      ChatResponse(true, "7", {"m", "fp_1"}, {Answer("a\n", FinishReason::kStop), thought}),
      R"({"id":"chatcmpl-7","object":"chat.completion","created":0,"model":"m",)"
      R"("system_fingerprint":"fp_1","choices":[{"index":0,"message":{"role":"assistant","content":"a\n"},"logprobs":null,)"
      R"("finish_reason":"stop","token_ids_fnv1a64":"fd1f0f4381eb0395","seed":9},)"
      R"({"index":1,"message":{"role":"assistant","content":"b\"","reasoning_content":"because"},)"
      R"("logprobs":null,"finish_reason":"length","token_ids_fnv1a64":"fd1f0f4381eb0395","seed":9}],)"
      R"("usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11}})");
  EXPECT_EQ(ChatResponse(false, "7", {"m", ""}, {Answer("x", FinishReason::kStopString)}),
            R"({"id":"cmpl-7","object":"text_completion","created":0,"model":"m","choices":[)"
            R"({"index":0,"text":"x","logprobs":null,"finish_reason":"stop",)"
            R"("token_ids_fnv1a64":"fd1f0f4381eb0395","seed":9}],)"
            R"("usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}})");
}

TEST(FlatResponse, HasTheFormOfTheJsonOutput) {
  Completion thought = Answer("b", FinishReason::kContext);
  thought.has_reasoning = true;
  thought.reasoning = "because";
  EXPECT_EQ(FlatResponse({"m", "fp_1"}, {thought}),
            R"("text":"b","reasoning":"because","finish_reason":"context",)"
            R"("token_ids_fnv1a64":"fd1f0f4381eb0395","seed":9,)"
            R"("usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8},)"
            R"("system_fingerprint":"fp_1")");
  EXPECT_EQ(FlatResponse({"m", ""}, {Answer("x", FinishReason::kStop), thought}),
            R"("choices":[{"text":"x","reasoning":"","finish_reason":"stop",)"
            R"("token_ids_fnv1a64":"fd1f0f4381eb0395","seed":9},)"
            R"({"text":"b","reasoning":"because","finish_reason":"context",)"
            R"("token_ids_fnv1a64":"fd1f0f4381eb0395","seed":9}],)"
            R"("usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11})");
}

}  // namespace
}  // namespace kuiper
