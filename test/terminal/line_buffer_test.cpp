#include "kuiper/terminal/line_buffer.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

LineBuffer Typed(const std::string& text) {
  LineBuffer buffer;
  buffer.Set(text);
  return buffer;
}

TEST(LineBuffer, InsertsAndErasesAtTheCursor) {
  LineBuffer buffer = Typed("helo");
  buffer.Left();
  buffer.Insert("l");
  buffer.Home();
  buffer.EraseAt();
  buffer.Insert("H");
  buffer.End();
  buffer.Insert("!!");
  buffer.EraseBefore();
  EXPECT_EQ(buffer.text(), "Hello!");
  buffer.Home();
  buffer.EraseBefore();
  buffer.Left();
  EXPECT_EQ(buffer.text(), "Hello!");
  buffer.Right();
  buffer.EraseToEnd();
  EXPECT_EQ(buffer.text(), "H");
}

TEST(LineBuffer, StepsOverWholeCharacters) {
  LineBuffer buffer = Typed("a你e\xcc\x81👍\xff");
  for (const size_t cursor : {11u, 7u, 4u, 1u, 0u, 0u}) {
    buffer.Left();
    EXPECT_EQ(buffer.cursor(), cursor);
  }
  buffer.End();
  buffer.EraseBefore();
  buffer.EraseBefore();
  EXPECT_EQ(buffer.text(), "a你e\xcc\x81");
  buffer.EraseBefore();
  EXPECT_EQ(buffer.text(), "a你");
}

TEST(LineBuffer, Words) {
  LineBuffer buffer = Typed("one two  three");
  buffer.WordLeft();
  EXPECT_EQ(buffer.cursor(), 9u);
  buffer.EraseWord();
  EXPECT_EQ(buffer.text(), "one three");
  buffer.WordRight();
  EXPECT_EQ(buffer.cursor(), 9u);
  buffer.EraseToHome();
  EXPECT_EQ(buffer.text(), "");
}

TEST(LineBuffer, MovesBetweenLines) {
  LineBuffer buffer = Typed("long line\nx\n你好吗");
  EXPECT_FALSE(buffer.Down());
  EXPECT_TRUE(buffer.Up());
  EXPECT_EQ(buffer.cursor(), 11u) << "the line above is shorter";
  EXPECT_TRUE(buffer.Up());
  EXPECT_EQ(buffer.cursor(), 1u);
  EXPECT_FALSE(buffer.Up());
  buffer.EraseToEnd();
  EXPECT_EQ(buffer.text(), "l\nx\n你好吗");
  buffer.EraseToEnd();
  EXPECT_EQ(buffer.text(), "lx\n你好吗") << "then the line break";
  EXPECT_TRUE(buffer.Down());
  EXPECT_EQ(buffer.cursor(), 3u) << "never inside a character";
}

TEST(LayOut, WrapsByColumns) {
  const ScreenText screen = LayOut("> ", Typed("ab你好c"), 6);
  EXPECT_EQ(screen.rows, (std::vector<std::string>{"> ab你", "好c"}));
  EXPECT_EQ(screen.cursor_row, 1u);
  EXPECT_EQ(screen.cursor_column, 3);
  EXPECT_TRUE(screen.ends_with_cursor);
  EXPECT_EQ(LayOut("> ", Typed("abc你"), 6).rows, (std::vector<std::string>{"> abc", "你"}))
      << "no half of a wide character";
}

TEST(LayOut, TheCursorBehindAFullRowIsOnTheNext) {
  const ScreenText screen = LayOut("", Typed("abcd"), 4);
  EXPECT_EQ(screen.rows, (std::vector<std::string>{"abcd", ""}));
  EXPECT_EQ(screen.cursor_row, 1u);
  EXPECT_EQ(screen.cursor_column, 0);
}

TEST(LayOut, LinesTabsAndWhatIsNoText) {
  LineBuffer buffer = Typed("a\tb\nc\xff");
  EXPECT_EQ(LayOut("> ", buffer, 20).rows, (std::vector<std::string>{"> a    b", "c\xef\xbf\xbd"}));
  buffer.Up();
  buffer.Home();
  const ScreenText screen = LayOut("> ", buffer, 20);
  EXPECT_EQ(screen.cursor_row, 0u);
  EXPECT_EQ(screen.cursor_column, 2);
  EXPECT_FALSE(screen.ends_with_cursor);
  // An accent that would join the prompt hides no cursor.
  buffer.Set("\xcc\x81");
  EXPECT_EQ(LayOut("> ", buffer, 20).cursor_row, 0u);
}

}  // namespace
}  // namespace kuiper
