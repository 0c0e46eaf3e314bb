#include <gtest/gtest.h>

#include "demo/chat_texts.h"

namespace kuiper::demo {
namespace {

TEST(ChatSettings, SetsSeveralAtOnce) {
  Request g;
  ASSERT_TRUE(ApplySettings("temp=0.7 top_k=20  top-p=0.9 seed=5 max_tokens=33", &g).ok());
  EXPECT_EQ(g.sampling.temperature, 0.7f);
  EXPECT_EQ(g.sampling.top_k, 20);
  EXPECT_EQ(g.sampling.top_p, 0.9f);
  EXPECT_EQ(g.sampling.seed, 5u);
  EXPECT_EQ(g.max_new_tokens, 33);
  ASSERT_TRUE(ApplySettings("temperature=0", &g).ok());
  EXPECT_EQ(g.sampling.temperature, 0.f);
  ASSERT_TRUE(ApplySettings("", &g).ok());
}

TEST(ChatSettings, OneMistakeChangesNothing) {
  Request g;
  for (const char* bad : {"temp=0.7 top_k=x", "temp", "top_p=0", "paged_attention=on", "x=1",
                          "max_tokens=0", "temp=", "stop=a", "logprobs=2"}) {
    const Status status = ApplySettings(bad, &g);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(g.sampling.temperature, 0.f) << bad;
  }
}

TEST(ChatSettings, DescriptionCanBeSetAgain) {
  Request g;
  ASSERT_TRUE(ApplySettings("temp=0.25 min_p=0.125 repetition_penalty=1.5 seed=7", &g).ok());
  Request again;
  ASSERT_TRUE(ApplySettings(DescribeSettings(g), &again).ok());
  EXPECT_EQ(DescribeSettings(again), DescribeSettings(g));
}

}  // namespace
}  // namespace kuiper::demo
