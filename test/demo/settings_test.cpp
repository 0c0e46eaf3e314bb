#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "demo/chat_texts.h"

namespace kuiper::demo {
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

TEST(ChatCommands, TheNearestNameIsSuggested) {
  EXPECT_EQ(UnknownCommand("/hepl").message(), "unknown command /hepl; did you mean /help?");
  EXPECT_EQ(UnknownCommand("/sys").message(), "unknown command /sys; did you mean /system?");
  EXPECT_EQ(UnknownCommand("/nonsense").message(), "unknown command /nonsense");
  EXPECT_EQ(CommandOf("exit"), "/quit");
  EXPECT_EQ(CommandOf("/?"), "/help");
  EXPECT_EQ(CommandOf("/quits"), "");
}

TEST(ChatTexts, ListsFitInto80Columns) {
  const auto lines_of = [](const std::string& text) {
    std::istringstream lines(text);
    int num_lines = 0;
    for (std::string line; std::getline(lines, line); ++num_lines)
      EXPECT_LT(line.size(), 80u) << line;
    return num_lines;
  };
  EXPECT_GT(lines_of(ChatHelp()), 20);
  EXPECT_GT(lines_of(DescribeSettings(Request(), true)), 1);
}

TEST(ChatTexts, PathsMayBeInQuotes) {
  EXPECT_EQ(TypedPath("'a b.png'"), "a b.png");
  EXPECT_EQ(TypedPath("\"a b.png\""), "a b.png");
  EXPECT_EQ(TypedPath("a 'b'"), "a 'b'");
  EXPECT_EQ(TypedPath("''"), "''");
  EXPECT_EQ(TypedPath("'"), "'");
}

TEST(ChatTexts, PathsMayBeginAtHome) {
  ASSERT_NE(std::getenv("HOME"), nullptr);
  EXPECT_EQ(TypedPath("~/a b.png"), std::string(std::getenv("HOME")) + "/a b.png");
  EXPECT_EQ(TypedPath("'~/a.png'"), "~/a.png");
  EXPECT_EQ(TypedPath("~a.png"), "~a.png");
  EXPECT_EQ(TypedPath("a/~/b"), "a/~/b");
}

TEST(ChatTexts, TheBlockTableSaysWhatItIs) {
  KvStats kv;
  kv.page_size = 16;
  kv.prefix_cache = true;
  std::optional<PageMap> map(8);
  const auto tell = [&](KvEvent::Kind kind, int index, int page, int holders, int free) {
    map->Apply({.kind = kind,
                .holder = {.request = 1, .sequence = index < 0 ? 0 : 1},
                .index = index,
                .page = page,
                .num_holders = holders,
                .num_free = free});
  };
  using enum KvEvent::Kind;
  tell(kAllocate, 0, 4, 1, 7);
  tell(kAllocate, 1, 7, 1, 6);
  tell(kShare, -1, 4, 2, 6);
  tell(kRelease, 0, 4, 1, 6);
  tell(kFree, 1, 7, 0, 7);
  ASSERT_TRUE(map->status().ok()) << map->status().message();
  const std::string pool =
      "\npool: 7 of 8 blocks free; so far 2 allocated, 1 shared,\n"
      "      0 copied, 0 evicted, 0 swapped out";
  EXPECT_EQ(BlockTableText(kv, {}, map), "block table: none, there is no answer yet" + pool);
  EXPECT_EQ(BlockTableText(kv, {3, 21, {4, 7}}, map),
            "block table: turn 3, 2 blocks of 16 tokens, 21 tokens\n"
            "  [0] tokens 0..15 -> block 4, kept by the prefix cache\n"
            "  [1] tokens 16..20 -> block 7, free again" +
                pool);
  kv.prefix_cache = false;
  EXPECT_NE(BlockTableText(kv, {3, 21, {4, 7}}, map).find("given back"), std::string::npos);
  EXPECT_EQ(BlockTableText(kv, {}, {}),
            "the KV cache is one contiguous buffer (--paged-attention uses blocks)");
}

}  // namespace
}  // namespace kuiper::demo
