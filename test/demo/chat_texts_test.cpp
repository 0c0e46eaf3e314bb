#include "demo/chat_texts.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "kuiper/chat/settings.h"

namespace kuiper::demo {
namespace {

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
  // With what was typed and the next prompt it fits 24 rows.
  EXPECT_LE(lines_of(*ChatHelp("", true, true)), 22);
  EXPECT_GT(lines_of(*ChatHelp("all", true, true)), 22);
  for (const char* topic : {"set", "/save", "load", "q"}) {
    EXPECT_GE(lines_of(*ChatHelp(topic, true, true)), 1) << topic;
  }
  EXPECT_GT(lines_of(DescribeSettings(Request(), true)), 1);
}

TEST(ChatTexts, HelpIsAboutWhatTheModelCan) {
  EXPECT_NE(ChatHelp("", true, true)->find("/image"), std::string::npos);
  for (const char* topic : {"", "all"}) {
    const std::string text = *ChatHelp(topic, false, false);
    for (const char* command : {"/image", "/video", "/think"}) {
      EXPECT_EQ(text.find(command), std::string::npos) << topic << ": " << command;
    }
  }
  EXPECT_NE(ChatHelp("set", false, false)->find("min_p"), std::string::npos);
  EXPECT_EQ(ChatHelp("svae", false, false).status().message(),
            "unknown command /svae; did you mean /save?");
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

}  // namespace
}  // namespace kuiper::demo
