#include "kuiper/report/repetition.h"

#include <gtest/gtest.h>

#include <string>

namespace kuiper {
namespace {

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(Repetition, LoopsAreFound) {
  std::string list = "Fruits:\n1. Apple\n2. Pear\n";
  for (int i = 3; i < 149; ++i) list += std::to_string(i) + ". Anise\n";
  EXPECT_TRUE(RepeatsItself(list));
  EXPECT_TRUE(RepeatsItself(list + "149. An")) << "cut within the period";
  const std::string sentence = "The sky is blue because the light of the sun is scattered. ";
  EXPECT_TRUE(RepeatsItself("Well. " + Times(4, sentence)));
  EXPECT_TRUE(RepeatsItself(Times(5, "First we go out.\n\n" + sentence + "\n\n")));
  EXPECT_TRUE(RepeatsItself(Times(40, "你好")));
}

TEST(Repetition, OrdinaryTextsAreNone) {
  EXPECT_FALSE(RepeatsItself(""));
  EXPECT_FALSE(RepeatsItself("No, no, no, no!"));
  EXPECT_FALSE(RepeatsItself(Times(3, "The same sentence, three times as a chorus in a song. ")));
  EXPECT_FALSE(RepeatsItself(Times(80, "-") + "\n" + Times(80, "=")));
  EXPECT_FALSE(RepeatsItself("| a | b |\n" + Times(30, "| 12 | 7 |\n")));
  EXPECT_FALSE(
      RepeatsItself("1. Apple\n2. Pear\n3. Plum\n4. Fig\n5. Lime\n6. Kiwi\n7. Date\n"
                    "8. Mango\n9. Guava\n10. Peach\n11. Grape\n12. Melon\n13. Quince\n"));
  EXPECT_FALSE(RepeatsItself(Times(10, "a loop that ended. ") + "And then it went on to its end."));
}

}  // namespace
}  // namespace kuiper
