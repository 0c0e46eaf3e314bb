// Sizes that are known before decoding, and decoding that stops when the caller no longer waits.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "kuiper/io/image/decode_image.h"
#include "kuiper/io/image/image_processor.h"
#include "kuiper/io/image/patch_writer.h"
#include "kuiper/io/image/resize.h"
#include "test/io/image/image_test_util.h"

namespace kuiper {
namespace {

ImageProcessor SmallProcessor() {
  ImageOptions options;
  options.min_pixels = 1024;
  options.max_pixels = 65536;
  return ImageProcessor::Create({}, options).value();
}

TEST(DecodingWatchTest, HeadersSayTheSizeOfEveryFile) {
  const JsonNode table = test::JsonAt(test::ImagePath("files.json"));
  int num_measured = 0;
  for (const std::string& name : table.Find("files")->keys) {
    const std::string bytes = test::FileBytes(test::ImagePath(name));
    ImageFile file = test::FileOf(bytes, name);
    const auto picture = DecodeImage(file);
    if (!picture.ok()) continue;
    const auto size = SizeOfImage(file);
    ASSERT_TRUE(size.ok()) << size.status().message();
    const std::pair<int64_t, int64_t> stored(size->width, size->height);
    const std::pair<int64_t, int64_t> shown(picture->width, picture->height);
    EXPECT_TRUE(stored == shown || stored == std::pair(shown.second, shown.first)) << name;
    file.limits.max_pixels = size->width * size->height - 1;
    EXPECT_FALSE(SizeOfImage(file).ok()) << name;
    ++num_measured;
  }
  EXPECT_GT(num_measured, 40);
}

TEST(DecodingWatchTest, WhatIsMeasuredBecomesWhatIsRead) {
  const ImageProcessor processor = SmallProcessor();
  for (const std::string name : {"rgb-8.png", "00-rgb.jpg", "still.gif", "rgb-80.webp"}) {
    const std::string bytes = test::FileBytes(test::ImagePath(name));
    auto input = processor.Measure(bytes, name);
    ASSERT_TRUE(input.ok()) << input.status().message();
    EXPECT_TRUE(input->patches.empty());
    const auto read = processor.FromBytes(bytes, name);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(input->num_tokens(), read->num_tokens());
    EXPECT_EQ(processor.patch_bytes(*input), read->patches.size() * sizeof(float));
    ASSERT_TRUE(processor.Decode(&*input, {}).ok());
    EXPECT_EQ(input->patches, read->patches);
    EXPECT_EQ(input->digest, read->digest);
    EXPECT_TRUE(input->undecoded.empty());
  }
}

// Stops waiting at call `last` of those that it gets.
struct Leaver {
  int64_t last = INT64_MAX, num_calls = 0, num_pixels = 0;

  DecodingWatch watch() {
    return {[this](int64_t new_pixels) {
      num_pixels += new_pixels;
      return ++num_calls < last;
    }};
  }
};

// After the caller stopped waiting, nothing more is decoded. One more call follows, with which the
// reader finds out why decoding ended.
TEST(DecodingWatchTest, WhoLeavesEndsTheDecodingOfEveryFormat) {
  const ImageProcessor processor = SmallProcessor();
  for (const std::string name :
       {"rgb-8.png", "palette-8-interlaced.png", "rgba-8.png", "gray-16.png", "00-rgb.jpg",
        "01-rgb.jpg", "still.gif", "rgb-80.webp", "rgba-lossless.webp", "moving.webp"}) {
    const std::string bytes = test::FileBytes(test::ImagePath(name));
    const VisionInput measured = processor.Measure(bytes, name).value();
    Leaver whole;
    VisionInput input = measured;
    ASSERT_TRUE(processor.Decode(&input, whole.watch()).ok()) << name;
    EXPECT_EQ(whole.num_pixels, int64_t{measured.width} * measured.height) << name;
    EXPECT_GT(whole.num_calls, name.ends_with(".webp") ? 10 : measured.height) << name;
    for (int64_t last = 1; last <= whole.num_calls; ++last) {
      Leaver leaver{.last = last};
      input = measured;
      const Status status = processor.Decode(&input, leaver.watch());
      ASSERT_EQ(status.code(), StatusCode::kUnavailable) << name << ", call " << last;
      ASSERT_LE(leaver.num_calls, last + 2) << name;
    }
  }
}

TEST(DecodingWatchTest, WhoLeavesEndsTheScaling) {
  const Picture picture = test::GeneratedPicture(90, 120);
  for (const PictureSize to : {PictureSize{64, 32}, PictureSize{32, 64}, PictureSize{120, 64}}) {
    Leaver whole;
    ASSERT_TRUE(Resize(picture, to, ScalingOrder::kPillow13, whole.watch()).ok());
    EXPECT_GT(whole.num_calls, 64);
    Leaver leaver{.last = whole.num_calls / 2};
    const auto scaled = Resize(picture, to, ScalingOrder::kPillow13, leaver.watch());
    EXPECT_EQ(scaled.status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(leaver.num_calls, leaver.last);
  }
}

}  // namespace
}  // namespace kuiper
