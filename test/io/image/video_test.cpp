#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kuiper/io/image/codecs.h"
#include "kuiper/io/image/decode_image.h"
#include "kuiper/io/image/frame_sampling.h"
#include "kuiper/io/image/image_processor.h"
#include "test/io/image/image_test_util.h"
#include "test/temp_dir.h"

namespace kuiper {
namespace {

TEST(VideoTest, SampledFramesAndTimesAreThoseOfTransformers) {
  const JsonNode table = test::JsonAt(test::ImagePath("sizes.json"));
  const JsonNode& cases = *table.Find("samples");
  ASSERT_EQ(cases.items.size(), 60u);
  for (const JsonNode& c : cases.items) {
    const int total = static_cast<int>(test::Int(c, "total"));
    const double fps = *c.Find("fps")->AsDouble();
    const std::vector<int> indices = SampledFrames({}, total, fps);
    EXPECT_EQ(static_cast<int64_t>(indices.size()), test::Int(c, "count"));
    EXPECT_EQ(test::Sha256Text(std::span<const int>(indices)), test::Text(c, "indices_sha256"))
        << total << " at " << fps;
    const std::vector<double> seconds = GroupSeconds(indices, 2, fps);
    ASSERT_EQ(seconds.size(), (indices.size() + 1) / 2);
    const std::vector<JsonNode>& expected = c.Find("seconds")->items;
    const size_t count = std::min<size_t>(3, seconds.size());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_DOUBLE_EQ(seconds[i], *expected[i].AsDouble());
      EXPECT_DOUBLE_EQ(seconds[seconds.size() - 1 - i],
                       *expected[expected.size() - 1 - i].AsDouble());
    }
  }
}

std::string FrameName(int number) {
  return std::string("f").append(std::to_string(number)).append(".png");
}

// A folder for frames, empty at first.
class FolderTest : public ::testing::Test {
 protected:
  // Writes a PNG whose pixel `i` has the colour 0xRRGGBB = `seed * 0x010203 + i * 7`.
  void Write(const std::string& name, int width, int height, int seed) {
    std::vector<uint8_t> rgb;
    for (int i = 0; i < width * height; ++i) {
      const int colour = seed * 0x010203 + i * 7;
      for (const int shift : {16, 8, 0}) rgb.push_back(static_cast<uint8_t>(colour >> shift));
    }
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width);
    image.height = static_cast<png_uint_32>(height);
    image.format = PNG_FORMAT_RGB;
    image.flags = PNG_IMAGE_FLAG_FAST;
    const std::string path = (folder_ / name).string();
    ASSERT_NE(png_image_write_to_file(&image, path.c_str(), 0, rgb.data(), 0, nullptr), 0) << path;
  }

  StatusOr<VisionInput> Video(std::optional<double> fps = {},
                              const ImageLimits& limits = {}) const {
    ImageOptions options;
    options.limits = limits;
    auto processor = ImageProcessor::Create({}, options);
    EXPECT_TRUE(processor.ok());
    return processor->FromVideo(folder_.string(), fps);
  }

  const test::TempDir dir_;
  const std::filesystem::path folder_ = dir_.path();
};

TEST_F(FolderTest, FramesComeInTheOrderOfTheirNames) {
  for (const int frame : {4, 2, 0, 3, 1}) Write(FrameName(frame), 64, 32, frame);
  Write(".hidden", 32, 32, 0);
  std::filesystem::create_directory(folder_ / "more");
  const auto video = Video(2.0);
  ASSERT_TRUE(video.ok()) << video.status().message();
  // 5 frames at 2 per second: all of them, with the last one repeated.
  EXPECT_EQ(video->grid, (PatchGrid{3, 2, 4}));
  EXPECT_EQ(video->num_tokens(), 6);
  EXPECT_EQ(video->seconds, (std::vector<double>{0.25, 1.25, 2.0}));
  const size_t frame_values = 8 * 1536;
  ASSERT_EQ(video->patches.size(), 3 * frame_values);
  for (int frame = 0; frame < 6; ++frame) {
    const int top_left = std::min(frame, 4) * 0x010203;
    const size_t at =
        static_cast<size_t>(frame / 2) * frame_values + static_cast<size_t>(frame % 2) * 256;
    EXPECT_NEAR(video->patches[at], (top_left >> 16 & 255) / 127.5 - 1, 1e-6);
    EXPECT_NEAR(video->patches[at + 512], (top_left >> 8 & 255) / 127.5 - 1, 1e-6) << frame;
    EXPECT_NEAR(video->patches[at + 1024], (top_left & 255) / 127.5 - 1, 1e-6) << frame;
  }
}

TEST_F(FolderTest, OrderIsPartOfTheDigest) {
  for (const int frame : {0, 1, 2, 3}) Write(FrameName(frame), 32, 32, frame);
  const auto video = Video(2.0);
  std::filesystem::rename(folder_ / "f0.png", folder_ / "f4.png");
  const auto rotated = Video(2.0);
  ASSERT_TRUE(video.ok() && rotated.ok());
  EXPECT_NE(video->digest, rotated->digest);
}

TEST_F(FolderTest, RefusesWhatIsNoVideo) {
  const auto message = [](const StatusOr<VisionInput>& video) {
    EXPECT_FALSE(video.ok());
    EXPECT_TRUE(video.ok() || video.status().code() == StatusCode::kInput);
    return video.ok() ? "" : video.status().message();
  };
  EXPECT_NE(message(Video()).find("holds no frames"), std::string::npos);
  Write("f0.png", 64, 64, 0);
  EXPECT_NE(message(Video()).find("has 1 frame; a video needs 2"), std::string::npos);
  Write("f1.png", 64, 96, 0);
  EXPECT_NE(message(Video()).find("frames of different sizes: 64x64 and 64x96"), std::string::npos);
  Write("f1.png", 64, 64, 0);
  EXPECT_TRUE(Video().ok());
  ImageLimits limits;
  limits.max_frames = 1;
  EXPECT_NE(message(Video({}, limits)).find("has more than 1 frames"), std::string::npos);
  limits = {};
  limits.max_video_pixels = 2 * 64 * 64 - 1;
  EXPECT_NE(message(Video({}, limits)).find("more than 8191 pixels together"), std::string::npos);
  ++limits.max_video_pixels;
  EXPECT_TRUE(Video({}, limits).ok());
  std::ofstream(folder_ / "f2.png") << "no picture";
  EXPECT_NE(message(Video()).find("f2.png is not a decodable image"), std::string::npos);
  for (const double fps : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(Video(fps).status().code(), StatusCode::kInvalidArgument);
  }
}

// With options, a frame may be as large as an image, because memory is planned for that. With the
// model's file alone, images and frames have separate budgets.
TEST_F(FolderTest, AFrameTakesWhatAPictureMayTake) {
  for (int frame = 0; frame < 4; ++frame) Write(FrameName(frame), 384, 256, frame);
  const auto grid_of = [&](const VisionConfig& config, const ImageOptions& options) {
    return ImageProcessor::Create(config, options)->FromVideo(folder_.string(), 2.0)->grid;
  };
  ImageOptions options;
  options.max_pixels = 70 * 32 * 32;
  EXPECT_EQ(grid_of({}, options), (PatchGrid{2, 12, 20}));
  options.max_tokens = 96;
  EXPECT_EQ(grid_of({}, options), (PatchGrid{2, 12, 20}));
  options.max_tokens = 20;
  EXPECT_EQ(grid_of({}, options), (PatchGrid{2, 6, 10}));
  VisionConfig config;
  config.image_pixels = {32 * 32, 70 * 32 * 32};
  EXPECT_EQ(grid_of(config, {}), (PatchGrid{2, 16, 24}));
}

TEST_F(FolderTest, TokensOfAFrameAreLimited) {
  constexpr int kTokensWhole = 12 * 8;
  for (const int num_frames : {4, 5, 6}) {
    Write(FrameName(num_frames - 1), 384, 256, 0);
    for (int frame = 0; frame + 1 < num_frames; ++frame) Write(FrameName(frame), 384, 256, frame);
    for (const int64_t max_tokens : {1, 2, 24, 95, 96, 97, 1 << 30}) {
      ImageOptions options;
      options.max_tokens = max_tokens;
      const auto video =
          ImageProcessor::Create({}, options).value().FromVideo(folder_.string(), 2.0);
      ASSERT_TRUE(video.ok()) << video.status().message();
      const int64_t tokens = video->num_tokens() / video->grid.t;
      EXPECT_LE(tokens, max_tokens) << num_frames << " frames";
      EXPECT_GE(tokens, std::min<int64_t>(max_tokens, kTokensWhole) / 2) << num_frames;
      // The budget is of transformers' own kind: for all frames together.
      VisionConfig config;
      const int64_t groups = num_frames / 2;
      config.video_pixels.max =
          std::min(config.video_pixels.max, max_tokens * 32 * 32 * 2 * groups);
      config.video_pixels.min = std::min(config.video_pixels.min, config.video_pixels.max);
      const auto expected =
          ImageProcessor::Create(config, {}).value().FromVideo(folder_.string(), 2.0);
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      EXPECT_EQ(video->digest, expected->digest);
    }
  }
}

TEST_F(FolderTest, OnlySampledFramesAreDecoded) {
  // 24 frames at 24 per second: 4 are sampled.
  for (int frame = 0; frame < 24; ++frame) {
    const std::string name = FrameName(100 + frame);
    if (frame % 8 == 0 || frame == 15 || frame == 23)
      Write(name, 32, 32, frame);
    else
      std::ofstream(folder_ / name) << "never read";
  }
  const auto video = Video();
  ASSERT_TRUE(video.ok()) << video.status().message();
  EXPECT_EQ(video->grid.t, 2);
}

// The processor's frames of an animation equal the decoder's, which are compared with Pillow.
TEST(VideoTest, AnimationsAreVideos) {
  VisionConfig config;
  config.patch_size = 1;
  config.merge_size = 1;
  config.video_pixels = {.min = 1, .max = 1 << 20};
  const auto processor = ImageProcessor::Create(config, {});
  ASSERT_TRUE(processor.ok());
  for (const std::string name : {"mixed.gif", "animation.webp"}) {
    const auto video = processor->FromVideo(test::ImagePath(name), {});
    ASSERT_TRUE(video.ok()) << video.status().message();
    EXPECT_EQ(video->grid.h, video->height);
    std::vector<Picture> frames;
    const std::string bytes = test::FileBytes(test::ImagePath(name));
    const auto keep = [&](int, const Picture& frame) -> StatusOr<bool> {
      frames.push_back(frame);
      return true;
    };
    const ImageFile file = test::FileOf(bytes, name);
    ASSERT_TRUE(
        (name.ends_with("gif") ? ForEachGifFrame(file, keep) : ForEachWebpFrame(file, keep)).ok());
    // 12 frames of 0.1 s give the minimum of 4; 3 frames give 3.
    const std::vector<int> taken =
        frames.size() == 12 ? std::vector<int>{0, 4, 7, 11} : std::vector<int>{0, 1, 2, 2};
    ASSERT_EQ(video->grid.t, 2);
    const size_t num_pixels =
        static_cast<size_t>(video->width) * static_cast<size_t>(video->height);
    for (size_t f = 0; f < 4; ++f) {
      const Picture& frame = frames[static_cast<size_t>(taken[f])];
      for (size_t i = 0; i < num_pixels; ++i) {
        for (size_t c = 0; c < 3; ++c) {
          const float value = video->patches[(f / 2 * num_pixels + i) * 6 + c * 2 + f % 2];
          ASSERT_NEAR(value, frame.rgb[3 * i + c] / 127.5 - 1, 1e-6) << name << " frame " << f;
        }
      }
    }
  }
  EXPECT_FALSE(processor->FromVideo(test::ImagePath("00-rgb.jpg"), {}).ok());
  EXPECT_FALSE(processor->FromVideo(test::ImagePath("absent.gif"), {}).ok());
}

}  // namespace
}  // namespace kuiper
