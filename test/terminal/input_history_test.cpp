#include "kuiper/terminal/input_history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "test/temp_dir.h"

namespace kuiper {
namespace {

class InputHistoryTest : public testing::Test {
 protected:
  std::string path() const { return dir_ / "state/chat_history"; }

  const test::TempDir dir_;
};

TEST_F(InputHistoryTest, TheNextChatHasTheLines) {
  const std::vector<std::string> lines = {"one", "two\nlines\n", "back\\slash \\n", "你好"};
  {
    InputHistory history(path());
    EXPECT_TRUE(history.lines().empty());
    for (const std::string& line : lines) EXPECT_TRUE(history.Add(line).ok());
    EXPECT_TRUE(history.Add(lines.back()).ok()) << "the same line again counts once";
    EXPECT_EQ(history.lines(), lines);
  }
  EXPECT_EQ(InputHistory(path()).lines(), lines);
  struct stat info = {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(InputHistoryTest, TheFileStaysShort) {
  InputHistory history(path());
  for (int i = 0; i < 2500; ++i) ASSERT_TRUE(history.Add(std::to_string(i)).ok());
  const InputHistory again(path());
  EXPECT_EQ(again.lines().size(), 1000u);
  EXPECT_EQ(again.lines().back(), "2499");
  EXPECT_EQ(InputHistory(path()).lines(), again.lines());
}

TEST_F(InputHistoryTest, AFileThatCannotBeWrittenIsAnError) {
  InputHistory history("/proc/nowhere/chat_history");
  EXPECT_EQ(history.Add("x").code(), StatusCode::kInternal);
  EXPECT_EQ(history.lines().size(), 1u);
  EXPECT_TRUE(InputHistory("").Add("x").ok());
}

}  // namespace
}  // namespace kuiper
