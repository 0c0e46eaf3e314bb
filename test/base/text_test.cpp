#include "kuiper/base/text.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

TEST(Counted, OneIsSingular) {
  EXPECT_EQ(Counted(0, "token"), "0 tokens");
  EXPECT_EQ(Counted(1, "token"), "1 token");
  EXPECT_EQ(Counted(2, "token"), "2 tokens");
}

TEST(EditDistance, CountsLettersAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("abc", "axc"), 1);
  EXPECT_EQ(EditDistance("abc", "ac"), 1);
  EXPECT_EQ(EditDistance("ac", "abc"), 1);
  EXPECT_EQ(EditDistance("chta", "chat"), 1);
  EXPECT_EQ(EditDistance("ca", "abc"), 3) << "letters that were swapped stay together";
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(NearestName, IsOneOfTheNamesOrNone) {
  const std::vector<std::string_view> names = {"run", "chat", "batch", "bench"};
  EXPECT_EQ(NearestName("rnu", names), "run");
  EXPECT_EQ(NearestName("chta", names), "chat");
  EXPECT_EQ(NearestName("bat", names), "batch") << "a beginning";
  EXPECT_EQ(NearestName("b", names), "");
  EXPECT_EQ(NearestName("", names), "");
  EXPECT_EQ(NearestName("serve", names), "");
  EXPECT_EQ(NearestName(std::string(41, 'a'), {"a"}), "");
  EXPECT_EQ(NearestName("run", {}), "");
}

TEST(DidYouMean, EndsAMessageOrIsNothing) {
  EXPECT_EQ(DidYouMean("rnu", {"run", "chat"}), "; did you mean run?");
  EXPECT_EQ(DidYouMean("rnu", {"run", "chat"}, "--"), "; did you mean --run?");
  EXPECT_EQ(DidYouMean("serve", {"run", "chat"}, "--"), "");
}

TEST(Text, PercentSignsStandForBytes) {
  EXPECT_EQ(PercentDecoded("Qwen%2FQwen3-8B"), "Qwen/Qwen3-8B");
  EXPECT_EQ(PercentDecoded("%e4%BD%a0"), "\xe4\xbd\xa0");
  for (const char* same : {"", "a+b", "%", "%2", "100%x1", "%-1", "%2x"}) {
    EXPECT_EQ(PercentDecoded(same), same);
  }
}

}  // namespace
}  // namespace kuiper
