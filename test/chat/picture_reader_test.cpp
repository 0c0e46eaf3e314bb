#include "kuiper/chat/picture_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "test/temp_dir.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;
using Kind = ContentPart::Kind;

constexpr char kRedPng[] =
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

class PictureReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto processor = ImageProcessor::Create(VisionConfig(), {});
    ASSERT_TRUE(processor.ok());
    reader_.emplace(*processor, VisionTokens{1, 2, 3, 4});
  }

  // Copies one of the repository's images to another name.
  std::string Copy(const std::string& from, const std::string& to) const {
    fs::copy_file(test::Source("test/data/images/" + from), folder_ / to,
                  fs::copy_options::overwrite_existing);
    return (folder_ / to).string();
  }
  static ContentPart Image(const std::string& path) { return {.kind = Kind::kImage, .text = path}; }
  std::string Error(ContentPart part, const std::string& folder = "") {
    const Status status = reader_->Read(folder, "message 0, part 1", &part);
    EXPECT_EQ(status.code(), StatusCode::kInput);
    return status.message();
  }

  const test::TempDir dir_;
  const fs::path folder_ = dir_.path();
  std::optional<PictureReader> reader_;
};

TEST_F(PictureReaderTest, PathsBecomeAbsoluteAndGetTheDigestOfTheirFile) {
  Copy("00-rgb.jpg", "a.jpg");
  ContentPart part = Image("a.jpg");
  ASSERT_TRUE(reader_->Read(folder_.string(), "x", &part).ok());
  EXPECT_EQ(part.text, (folder_ / "a.jpg").lexically_normal().string());
  EXPECT_EQ(part.digest.size(), 32u);
  ContentPart file = Image("file://" + part.text), other = Image(Copy("01-rgb.jpg", "b.jpg"));
  ASSERT_TRUE(reader_->Read("elsewhere", "x", &file).ok());
  ASSERT_TRUE(reader_->Read("", "x", &other).ok());
  EXPECT_EQ(file.digest, part.digest);
  EXPECT_NE(other.digest, part.digest);
  const auto inputs = reader_->Of({Message{.parts = {part, other}}, Message{.parts = {file}}});
  ASSERT_TRUE(inputs.ok());
  ASSERT_EQ(inputs->size(), 3u);
  EXPECT_EQ(inputs->at(0), inputs->at(2));
  EXPECT_NE(inputs->at(0)->digest, inputs->at(1)->digest);
  EXPECT_GT(reader_->TakeReadMs(), 0);
  EXPECT_EQ(reader_->TakeReadMs(), 0);
}

TEST_F(PictureReaderTest, AChangedFileIsAnErrorThatNamesIt) {
  ContentPart part = Image(Copy("00-rgb.jpg", "a.jpg"));
  ASSERT_TRUE(reader_->Read("", "x", &part).ok());
  // A known file is not read again.
  fs::remove(part.text);
  EXPECT_TRUE(reader_->Read("", "x", &part).ok());
  reader_->KeepOnly({});
  EXPECT_EQ(Error(part), "cannot open image " + part.text + ": No such file or directory");
  Copy("01-rgb.jpg", "a.jpg");
  EXPECT_EQ(Error(part).find(part.text + " is not what it was: its digest is "), 0u);
  Copy("00-rgb.jpg", "a.jpg");
  EXPECT_TRUE(reader_->Read("", "x", &part).ok());
}

TEST_F(PictureReaderTest, DataUrlsAreReadAndOthersAreNotFetched) {
  ContentPart part = Image(kRedPng);
  ASSERT_TRUE(reader_->Read("elsewhere", "x", &part).ok());
  EXPECT_EQ(part.text, kRedPng);
  EXPECT_FALSE(part.digest.empty());
  EXPECT_EQ(reader_->Of({Message{.parts = {part}}})->at(0)->width, 1);
  EXPECT_EQ(Error(Image("https://example.com/cat.png")),
            "message 0, part 1: \"https://example.com/cat.png\" is not fetched");
  EXPECT_EQ(Error(Image("")), "message 0, part 1 has neither a path nor a URL");
  EXPECT_EQ(Error(Image("data:text/plain,QUJD")).find("message 0, part 1: the data: URL"), 0u);
  EXPECT_EQ(Error(Image("data:text/plain;base64,QUJD")).find("message 0, part 1 is not a"), 0u);
  EXPECT_EQ(Error({.kind = Kind::kVideo, .text = kRedPng}),
            "message 0, part 1: a video has no data: URL");
}

TEST_F(PictureReaderTest, MessagesNameThePartThatIsWrong) {
  std::vector<Message> messages(2);
  messages[1].parts = {{.text = "look"}, Image("")};
  EXPECT_EQ(reader_->Read("", &messages).message(),
            "message 1, part 1 has neither a path nor a URL");
}

TEST_F(PictureReaderTest, VideosOfOneFileDifferByTheirRate) {
  std::vector<ContentPart> parts(2, {.kind = Kind::kVideo, .text = Copy("moving.webp", "v")});
  parts[1].fps = 0.5;
  for (ContentPart& part : parts) {
    const Status status = reader_->Read("", "x", &part);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  const auto inputs = reader_->Of({Message{.parts = parts}});
  ASSERT_TRUE(inputs.ok());
  EXPECT_NE(inputs->at(0)->seconds, inputs->at(1)->seconds);
  EXPECT_GT(reader_->largest_frame(), 0);
}

TEST_F(PictureReaderTest, FilesWithTheSameBytesKeepTheirNames) {
  ContentPart a = Image(Copy("00-rgb.jpg", "a.jpg")), b = Image(Copy("00-rgb.jpg", "b.jpg"));
  ASSERT_TRUE(reader_->Read("", "x", &a).ok());
  ASSERT_TRUE(reader_->Read("", "x", &b).ok());
  EXPECT_EQ(a.digest, b.digest);
  const auto inputs = reader_->Of({Message{.parts = {a, b}}});
  ASSERT_TRUE(inputs.ok());
  EXPECT_EQ(inputs->at(0)->source, a.text);
  EXPECT_EQ(inputs->at(1)->source, b.text);
  EXPECT_EQ(inputs->at(0)->digest, inputs->at(1)->digest);
}

TEST_F(PictureReaderTest, MissingFilesSayWhatToDo) {
  ContentPart part = Image(Copy("00-rgb.jpg", "a.jpg"));
  ASSERT_TRUE(reader_->Read("", "x", &part).ok());
  fs::remove(part.text);
  reader_->KeepOnly({});
  EXPECT_EQ(reader_->Read("", "x", &part).hint(),
            "bring the file back, or take the message out of the conversation");
  ContentPart other = Image(part.text);
  EXPECT_EQ(reader_->Read("", "x", &other).hint(), "");
  EXPECT_EQ(Error({.kind = Kind::kVideo, .text = part.text}),
            "cannot open video " + part.text + ": No such file or directory");
}

TEST_F(PictureReaderTest, WhatNobodyHasIsForgotten) {
  ContentPart a = Image(Copy("00-rgb.jpg", "a.jpg")), b = Image(Copy("01-rgb.jpg", "b.jpg"));
  ASSERT_TRUE(reader_->Read("", "x", &a).ok());
  ASSERT_TRUE(reader_->Read("", "x", &b).ok());
  reader_->KeepOnly({Message{.parts = {b}}});
  EXPECT_TRUE(reader_->Of({Message{.parts = {b}}}).ok());
  EXPECT_EQ(reader_->Of({Message{.parts = {a}}}).status().code(), StatusCode::kInput);
  reader_->KeepOnly({});
  EXPECT_EQ(reader_->largest_frame(), 0);
}

}  // namespace
}  // namespace kuiper
