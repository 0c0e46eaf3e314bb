#include "kuiper/chat/settings.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kuiper {
namespace {

// ApplySettings for tests that ignore the overflow setting.
Status Apply(const std::string& assignments, Request* request) {
  bool drop_oldest = false;
  return ApplySettings(assignments, request, &drop_oldest);
}

TEST(ChatSettings, SetsSeveralAtOnce) {
  Request g;
  ASSERT_TRUE(Apply("temp=0.7 top_k=20  top-p=0.9 seed=5 max_tokens=33", &g).ok());
  EXPECT_EQ(g.sampling.temperature, 0.7f);
  EXPECT_EQ(g.sampling.top_k, 20);
  EXPECT_EQ(g.sampling.top_p, 0.9f);
  EXPECT_EQ(g.sampling.seed, 5u);
  EXPECT_EQ(g.max_new_tokens, 33);
  ASSERT_TRUE(Apply("temperature=0", &g).ok());
  EXPECT_EQ(g.sampling.temperature, 0.f);
  ASSERT_TRUE(Apply("", &g).ok());
}

TEST(ChatSettings, MistakesAreNamedAndTheRestIsSet) {
  for (const char* bad : {"top_k=x", "temp", "top_p=0", "paged_attention=on", "x=1", "max_tokens=0",
                          "temp=", "logprobs=2", "overflow=x", "max_tokens=-2", "temp top_k=x"}) {
    Request g;
    EXPECT_EQ(Apply(bad, &g).code(), StatusCode::kInvalidArgument) << bad;
    const Status status = Apply(std::string("min_p=0.25 ") + bad + " seed=9", &g);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.hint().find("everything else is set"), std::string::npos) << status.hint();
    EXPECT_EQ(g.sampling.min_p, 0.25f) << bad;
    EXPECT_EQ(g.sampling.seed, 9u) << bad;
    EXPECT_EQ(g.sampling.temperature, 0.f) << bad;
  }
  Request g;
  const Status both = Apply("tmp=1 temp=x", &g);
  EXPECT_EQ(both.message(),
            "/set tmp: there is no such parameter; did you mean temp?; /set temp: 'x' is not a "
            "number");
  EXPECT_EQ(both.hint(), "/set alone lists the parameters");
  EXPECT_FALSE(Apply("temp=0.7 stop=\"a", &g).ok());
  EXPECT_EQ(g.sampling.temperature, 0.f) << "nobody knows where the value ends";
}

TEST(ChatSettings, NameAndValueMayBeTwoWords) {
  for (const char* words : {"temp 0.75", "temperature 0.75", "parameter temperature 0.75",
                            "temp = 0.75", "temp= 0.75", "temp =0.75", "parameter temp=0.75"}) {
    Request g;
    const Status status = Apply(std::string(words) + " top_k 7 seed=5 min-p 0.5", &g);
    EXPECT_TRUE(status.ok()) << words << ": " << status.message();
    EXPECT_EQ(g.sampling.temperature, 0.75f) << words;
    EXPECT_EQ(g.sampling.top_k, 7) << words;
    EXPECT_EQ(g.sampling.seed, 5u) << words;
    EXPECT_EQ(g.sampling.min_p, 0.5f) << words;
  }
  Request g;
  ASSERT_TRUE(Apply("stop END \"a b\" temp=0.5", &g).ok());
  EXPECT_EQ(g.stop, (std::vector<std::string>{"END", "a b"}));
  EXPECT_EQ(g.sampling.temperature, 0.5f);
  ASSERT_TRUE(Apply("stop=END stop=\"x=y\"", &g).ok());
  EXPECT_EQ(g.stop, (std::vector<std::string>{"END", "x=y"}));
}

TEST(ChatSettings, NamesOfLlamaCppAndOllama) {
  Request g;
  ASSERT_TRUE(Apply("repeat_penalty=1.25 num_predict=77", &g).ok());
  EXPECT_EQ(g.sampling.repetition_penalty, 1.25f);
  EXPECT_EQ(g.max_new_tokens, 77);
  ASSERT_TRUE(Apply("parameter n_predict -1", &g).ok());
  EXPECT_EQ(g.max_new_tokens, INT32_MAX);
  EXPECT_NE(DescribeSettings(g, true).find("max_tokens=-1"), std::string::npos);
  const std::pair<const char*, const char*> elsewhere[] = {
      {"num_ctx=4096", "max_context"},
      {"parameter num_gpu 99", "device"},
      {"num_thread 4", "threads"},
      {"mirostat=2", "this sampler is not supported"},
      {"repeat_last_n=64", "penalties"}};
  for (const auto& [words, hint] : elsewhere) {
    const Status status = Apply(words, &g);
    EXPECT_NE(status.message().find("there is no such parameter"), std::string::npos) << words;
    EXPECT_NE(status.hint().find(hint), std::string::npos) << words << ": " << status.hint();
  }
}

TEST(ChatSettings, StopStrings) {
  Request g;
  ASSERT_TRUE(Apply("stop=END temp=0.5 stop=\"a \\\"b\\\"\\n\"", &g).ok());
  EXPECT_EQ(g.stop, (std::vector<std::string>{"END", "a \"b\"\n"}));
  EXPECT_EQ(g.sampling.temperature, 0.5f);
  ASSERT_TRUE(Apply("stop=x", &g).ok());
  EXPECT_EQ(g.stop, std::vector<std::string>{"x"}) << "a new list replaces the old one";
  EXPECT_FALSE(Apply("stop=\xff", &g).ok());
  ASSERT_TRUE(Apply("stop=", &g).ok());
  EXPECT_TRUE(g.stop.empty());
}

TEST(ChatSettings, Overflow) {
  Request g;
  bool drop_oldest = false;
  ASSERT_TRUE(ApplySettings("overflow=drop-oldest", &g, &drop_oldest).ok());
  EXPECT_TRUE(drop_oldest);
  EXPECT_FALSE(ApplySettings("overflow error temp=x", &g, &drop_oldest).ok());
  EXPECT_FALSE(drop_oldest);
}

TEST(ChatSettings, DescriptionCanBeSetAgain) {
  Request g;
  ASSERT_TRUE(Apply("temp=0.25 min_p=0.125 repetition_penalty=1.5 seed=7 reasoning_budget=auto "
                    "stop=\"a\\\\ b\" stop=c",
                    &g)
                  .ok());
  Request again;
  bool drop_oldest = false;
  const std::string text = DescribeSettings(g, true);
  ASSERT_TRUE(ApplySettings(text, &again, &drop_oldest).ok()) << text;
  EXPECT_EQ(again.stop, g.stop);
  EXPECT_EQ(again.reasoning_budget, kAutoReasoningBudget);
  EXPECT_EQ(DescribeSettings(again, drop_oldest), text);
}

TEST(ChatSettings, TheNearestNameIsSuggested) {
  Request g;
  EXPECT_EQ(Apply("tmp=1", &g).message(),
            "/set tmp: there is no such parameter; did you mean temp?");
  EXPECT_EQ(Apply("overflw=error", &g).message(),
            "/set overflw: there is no such parameter; did you mean overflow?");
  EXPECT_EQ(Apply("context=1", &g).message(), "/set context: there is no such parameter");
}

}  // namespace
}  // namespace kuiper
