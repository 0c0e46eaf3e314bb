#include "kuiper/chat/messages_file.h"

#include <gtest/gtest.h>

#include "test/temp_file.h"

namespace kuiper {
namespace {

using test::TempFile;

TEST(MessagesFile, PicturesWithoutAPathAreThoseThatWereGiven) {
  using Kind = ContentPart::Kind;
  const TempFile file(R"([{"role":"user","content":[{"type":"image"},{"type":"text","text":"and"},
      {"type":"image","image":"own.png"},{"type":"video"}]}])");
  std::vector<ContentPart> media = {{.kind = Kind::kImage, .text = "a"},
                                    {.kind = Kind::kVideo, .text = "b"}};
  const auto messages = ReadMessagesFile(file.path(), media, -1);
  ASSERT_TRUE(messages.ok()) << messages.status().message();
  const std::vector<ContentPart>& parts = messages->messages[0].parts;
  EXPECT_EQ(parts[0].text, "a");
  EXPECT_EQ(parts[2].text, "own.png");
  EXPECT_EQ(parts[3].text, "b");
  media.pop_back();
  EXPECT_EQ(ReadMessagesFile(file.path(), media, -1).status().message(),
            "the messages have places for 2 pictures, and 1 was given");
  media.insert(media.begin(), {.kind = Kind::kVideo, .text = "b"});
  EXPECT_EQ(ReadMessagesFile(file.path(), media, -1).status().message(),
            "the messages have the place of an image where a video was given");
}

TEST(MessagesFile, MistakesNameTheFile) {
  const TempFile bad("[{]");
  const Status status = ReadMessagesFile(bad.path(), {}, -1).status();
  EXPECT_EQ(status.code(), StatusCode::kInput);
  EXPECT_EQ(status.message().find(bad.path() + ": "), 0u) << status.message();
  const TempFile input(R"([{"role": "user", "content": "U"}])");
  const auto messages = ReadMessagesFile("-", {}, input.fd());
  ASSERT_TRUE(messages.ok()) << messages.status().message();
  EXPECT_EQ(messages->messages.at(0).text, "U");
}

}  // namespace
}  // namespace kuiper
