#include "kuiper/terminal/line_wrapper.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

// Piece by piece, as an answer comes, and each way of cutting it must give the same.
std::string Wrapped(const std::string& text, size_t width) {
  const std::string whole = WrapLines(text, width);
  LineWrapper wrapper;
  std::string lines;
  for (size_t at = 0; at < text.size();) {
    const int bytes = NextUtf8(std::string_view(text).substr(at)).num_bytes;
    lines += wrapper.Add(text.substr(at, bytes), width);
    at += bytes;
  }
  EXPECT_EQ(lines + wrapper.Flush(), whole);
  return whole;
}

TEST(LineWrapper, BreaksBetweenWords) {
  EXPECT_EQ(Wrapped("the challenge of the day\n", 12), "the\nchallenge of\nthe day\n");
  EXPECT_EQ(Wrapped("exactly ten", 11), "exactly ten");
  EXPECT_EQ(Wrapped("a\n\n  b  c\n", 12), "a\n\n  b  c\n") << "line breaks and blanks stay";
}

TEST(LineWrapper, AWordWaitsForItsEnd) {
  LineWrapper wrapper;
  EXPECT_EQ(wrapper.Add("the challeng", 12), "the");
  EXPECT_EQ(wrapper.Add("ed", 12), "");
  EXPECT_EQ(wrapper.Add(" ", 12), "\nchallenged");
  EXPECT_EQ(wrapper.Add("man", 12), "");
  EXPECT_EQ(wrapper.Flush(), "\nman");
}

TEST(LineWrapper, AnotherWriterMayEndTheLine) {
  LineWrapper wrapper;
  EXPECT_EQ(wrapper.Add("twelve chars ", 12), "twelve chars");
  wrapper.StartLine();
  EXPECT_EQ(wrapper.Add("and more ", 12), " and more");
}

TEST(LineWrapper, WordsThatNoLineHoldsStayWhole) {
  const std::string url = "https://example.org/a/long/path";
  EXPECT_EQ(Wrapped("see " + url + " and more", 12), "see\n" + url + " and\nmore");
}

TEST(LineWrapper, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(Wrapped("你好世界你好", 8), "你好世界\n你好");
  EXPECT_EQ(Wrapped("你好世界。你好", 8), "你好世\n界。你好") << "no line begins with a full stop";
  EXPECT_EQ(Wrapped("说「你好」吧", 5), "说\n「你\n好」\n吧") << "no line ends with a bracket";
  EXPECT_EQ(Wrapped("ab你cd", 4), "ab你\ncd");
}

TEST(LineWrapper, EscapeSequencesTakeNoColumns) {
  EXPECT_EQ(Wrapped("\x1b[2mthe challeng\x1b[0m\x1b[2med man\x1b[0m\n", 10),
            "\x1b[2mthe\nchalleng\x1b[0m\x1b[2med\nman\x1b[0m\n");
}

TEST(LineWrapper, PreformattedLinesStay) {
  const std::string code = "```python\nprint('a long line of code')\n```\n";
  EXPECT_EQ(Wrapped(code + "and a sentence\n", 10), code + "and a\nsentence\n");
  for (const std::string line : {"    an indented line of code\n", "\tan indented line of code\n",
                                 "| a table | with cells |\n", "~~~\nlong line here\n~~~\n"}) {
    EXPECT_EQ(Wrapped(line, 10), line);
  }
  EXPECT_EQ(Wrapped("    - an item of a list\n", 12), "    - an\nitem of a\nlist\n");
  EXPECT_EQ(Wrapped("   12. an item of it\n", 12), "   12. an\nitem of it\n");
}

TEST(LineWrapper, ACodeBlockThatWasCutEndsWithItsText) {
  LineWrapper wrapper;
  EXPECT_EQ(wrapper.Add("```\na long line of code\n", 10), "```\na long line of code\n");
  EXPECT_EQ(wrapper.Flush(), "");
  EXPECT_EQ(wrapper.Add("another text ", 10), "another\ntext");
}

TEST(LineWrapper, NoLineIsTooWideAndNothingIsLost) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += std::string(1 + i * 7 % 13, static_cast<char>('a' + i % 26)) + " ";
  for (size_t width : {14u, 40u, 80u}) {
    std::string words;
    std::istringstream lines(Wrapped(text, width));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), width);
      words += line + " ";
    }
    EXPECT_EQ(words, text);
  }
}

}  // namespace
}  // namespace kuiper
