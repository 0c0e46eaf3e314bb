#include "kuiper/chat/settings.h"

#include <gtest/gtest.h>

#include <string>

namespace kuiper {
namespace {

// ApplySettings where the overflow does not matter.
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

TEST(ChatSettings, OneMistakeChangesNothing) {
  Request g;
  for (const char* bad :
       {"temp=0.7 top_k=x", "temp", "top_p=0", "paged_attention=on", "x=1", "max_tokens=0",
        "temp=", "logprobs=2", "overflow=x", "temp=0.7 stop=\"a"}) {
    const Status status = Apply(bad, &g);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(g.sampling.temperature, 0.f) << bad;
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
  EXPECT_FALSE(ApplySettings("overflow=error temp=x", &g, &drop_oldest).ok());
  EXPECT_TRUE(drop_oldest) << "all or nothing";
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
