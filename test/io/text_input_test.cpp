#include "kuiper/io/text_input.h"

#include <gtest/gtest.h>

#include "test/temp_file.h"

namespace kuiper {
namespace {

using test::TempFile;

TEST(TextInput, IsReadWithoutItsByteOrderMark) {
  const TempFile file("\xef\xbb\xbftext\n");
  EXPECT_EQ(*ReadTextInput(file.path(), "file"), "text\n");
  EXPECT_EQ(*ReadTextInput("-", "file", file.fd()), "text\n");
}

TEST(TextInput, MistakesNameIt) {
  EXPECT_EQ(ReadTextInput("/nonexistent", "text file").status().message(),
            "cannot open text file /nonexistent: No such file or directory");
  const TempFile empty(""), bad("\xff");
  EXPECT_EQ(ReadTextInput("-", "text file", empty.fd()).status().message(),
            "standard input is empty");
  EXPECT_EQ(ReadTextInput(bad.path(), "text file").status().message(),
            "text file " + bad.path() + " is not valid UTF-8");
}

TEST(TextInput, PathsBeginInTheFolderOfTheirFile) {
  EXPECT_EQ(FolderOf("/a/b.json"), "/a");
  EXPECT_EQ(FolderOf("b.json"), "");
}

}  // namespace
}  // namespace kuiper
