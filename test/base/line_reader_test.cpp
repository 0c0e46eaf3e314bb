#include "kuiper/base/line_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "test/temp_file.h"

namespace kuiper {
namespace {

using test::TempFile;

TEST(LineReader, LinesWithAndWithoutEnds) {
  TempFile file("one\n\ntwo\r\nthree");
  LineReader reader(file.fd());
  EXPECT_EQ(reader.Next(), "one");
  EXPECT_EQ(reader.Next(), "");
  EXPECT_EQ(reader.Next(), "two");
  EXPECT_EQ(reader.Next(), "three");
  EXPECT_EQ(reader.Next(), std::nullopt);
}

TEST(LineReader, SkipsTheRestOfAnEndlessLine) {
  constexpr size_t kMaxLine = size_t{64} << 20;
  TempFile file(std::string(kMaxLine + 5000, 'x') + "\nnext");
  LineReader reader(file.fd());
  EXPECT_EQ(reader.Next()->size(), kMaxLine);
  EXPECT_EQ(reader.Next(), "next");
  EXPECT_EQ(reader.Next(), std::nullopt);
}

TEST(LineReader, IsReadyWhenALineOrTheEndIsThere) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  LineReader reader(ends[0]);
  EXPECT_FALSE(reader.Ready(0));
  ASSERT_EQ(write(ends[1], "on", 2), 2);
  EXPECT_FALSE(reader.Ready(0)) << "half a line";
  ASSERT_EQ(write(ends[1], "e\ntwo\nth", 8), 8);
  EXPECT_TRUE(reader.Ready(0));
  EXPECT_EQ(reader.Next(), "one");
  EXPECT_TRUE(reader.Ready(0)) << "it has come already";
  EXPECT_EQ(reader.Next(), "two");
  EXPECT_FALSE(reader.Ready(0));
  close(ends[1]);
  EXPECT_TRUE(reader.Ready(0));
  EXPECT_EQ(reader.Next(), "th");
  EXPECT_TRUE(reader.Ready(0));
  EXPECT_EQ(reader.Next(), std::nullopt);
  close(ends[0]);
}

TEST(LineReader, SaysWhyItEnds) {
  TempFile file("a");
  LineReader reader(file.fd());
  EXPECT_EQ(reader.Next(), "a");
  EXPECT_EQ(reader.Next(), std::nullopt);
  EXPECT_TRUE(reader.status().ok());
  LineReader closed(-1);
  EXPECT_EQ(closed.Next(), std::nullopt);
  EXPECT_EQ(closed.status().code(), StatusCode::kInput);
}

}  // namespace
}  // namespace kuiper
