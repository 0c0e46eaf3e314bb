#include "kuiper/io/image/decode_image.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/io/image/codecs.h"
#include "test/io/image/image_test_util.h"

namespace kuiper {
namespace {

// Checks each file of test/data/images: width, height and digest of Pillow's pixels.
TEST(DecodeImageTest, PixelsAreThoseOfPillow) {
  const JsonNode table = test::JsonAt(test::ImagePath("files.json"));
  const JsonNode& files = *table.Find("files");
  ASSERT_GT(files.keys.size(), 150u);
  for (size_t i = 0; i < files.keys.size(); ++i) {
    const std::string& name = files.keys[i];
    const JsonNode& expected = files.items[i];
    const std::string bytes = test::FileBytes(test::ImagePath(name));
    const auto picture = DecodeImage(test::FileOf(bytes, name));
    ASSERT_TRUE(picture.ok()) << picture.status().message();
    EXPECT_EQ(picture->width, test::Int(expected, "width")) << name;
    EXPECT_EQ(picture->height, test::Int(expected, "height")) << name;
    EXPECT_EQ(test::Sha256Text(*picture), test::Text(expected, "sha256")) << name;
  }
}

// Checks each of these images against Pillow's result on white.
TEST(DecodeImageTest, SharedTransparentPictures) {
  KU_REQUIRE_SHARED("outside/06-transparent-png");
  for (const std::string name : {"palette", "grey-trns", "rgba"}) {
    const std::string folder = test::Shared("outside/06-transparent-png/");
    const auto digest = [&](const std::string& file) {
      const std::string bytes = test::FileBytes(folder + file);
      const auto picture = DecodeImage(test::FileOf(bytes, file));
      EXPECT_TRUE(picture.ok()) << picture.status().message();
      return picture.ok() ? test::Sha256Text(*picture) : "";
    };
    EXPECT_EQ(digest(name + ".png"), digest(name + "-on-white.png")) << name;
  }
}

// Checks the frames of animations and their durations against Pillow.
TEST(DecodeImageTest, FramesAreThoseOfPillow) {
  const JsonNode table = test::JsonAt(test::ImagePath("files.json"));
  const JsonNode& files = *table.Find("files");
  int animations = 0;
  for (size_t i = 0; i < files.keys.size(); ++i) {
    const JsonNode* frames = files.items[i].Find("frames");
    if (frames == nullptr) continue;
    ++animations;
    const std::string& name = files.keys[i];
    const std::string bytes = test::FileBytes(test::ImagePath(name));
    const ImageFile file = test::FileOf(bytes, name);
    const bool is_gif = test::Text(files.items[i], "format") == "GIF";
    std::vector<std::string> digests;
    const auto sink = [&](int index, const Picture& frame) -> StatusOr<bool> {
      EXPECT_EQ(index, static_cast<int>(digests.size()));
      digests.push_back(test::Sha256Text(frame));
      return true;
    };
    const Status played = is_gif ? ForEachGifFrame(file, sink) : ForEachWebpFrame(file, sink);
    ASSERT_TRUE(played.ok()) << played.message();
    ASSERT_EQ(digests.size(), frames->items.size()) << name;
    double seconds = 0;
    for (size_t f = 0; f < digests.size(); ++f) {
      EXPECT_EQ(digests[f], frames->items[f].text) << name << " frame " << f;
      const double ms = *files.items[i].Find("milliseconds")->items[f].AsDouble();
      seconds += ms < 20 ? 0.1 : ms / 1000;
    }
    const auto facts = is_gif ? GifFacts(file) : WebpFacts(file);
    ASSERT_TRUE(facts.ok()) << facts.status().message();
    EXPECT_EQ(facts->num_frames, static_cast<int>(digests.size())) << name;
    EXPECT_NEAR(facts->seconds, seconds, 1e-9) << name;
  }
  EXPECT_GE(animations, 10);
}

}  // namespace
}  // namespace kuiper
