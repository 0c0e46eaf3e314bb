#include "kuiper/io/image/vision_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "test/temp_dir.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

class VisionConfigTest : public ::testing::Test {
 protected:
  StatusOr<VisionConfig> Read(const std::string& images) const {
    std::ofstream(folder_ / "preprocessor_config.json") << images;
    return ReadVisionConfig(folder_.string());
  }
  const test::TempDir dir_;
  const std::filesystem::path folder_ = dir_.path();
};

TEST_F(VisionConfigTest, ReadsTheFilesOfQwen3Vl) {
  KU_REQUIRE_SHARED("configs/Qwen3-VL.preprocessor_config.json");
  for (const std::string name : {"preprocessor_config.json", "video_preprocessor_config.json"}) {
    std::filesystem::copy_file(test::Shared("configs/Qwen3-VL." + name), folder_ / name);
  }
  const auto config = ReadVisionConfig(folder_.string());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->factor(), 32);
  EXPECT_EQ(config->patch_values(), 1536);
  EXPECT_EQ(config->image_pixels.min, 65536);
  EXPECT_EQ(config->image_pixels.max, 16777216);
  EXPECT_EQ(config->video_pixels.min, 4096);
  EXPECT_EQ(config->video_pixels.max, 25165824);
  EXPECT_EQ(config->mean[2], 0.5f);
}

TEST_F(VisionConfigTest, FieldsReplaceDefaults) {
  std::ofstream(folder_ / "video_preprocessor_config.json")
      << R"({"min_pixels": 5, "max_pixels": 77, "fps": 1.5, "min_frames": 2, "max_frames": 9})";
  const auto config =
      Read(R"({"patch_size": 14, "merge_size": 3, "temporal_patch_size": 1, "min_pixels": 3136,
               "max_pixels": 12845056, "image_mean": [0, 0.25, 1], "image_std": [1, 2, 0.5],
               "size": null})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->factor(), 42);
  EXPECT_EQ(config->patch_values(), 588);
  EXPECT_EQ(config->image_pixels.min, 3136);
  EXPECT_EQ(config->image_pixels.max, 12845056);
  EXPECT_EQ(config->mean[1], 0.25f);
  EXPECT_EQ(config->std[1], 2.0f);
  EXPECT_EQ(config->video_pixels.max, 77);
  EXPECT_EQ(config->sampled_fps, 1.5);
  EXPECT_EQ(config->min_frames, 2);
  EXPECT_EQ(config->max_frames, 9);
}

TEST_F(VisionConfigTest, RefusesWhatNoModelMeans) {
  for (const char* json :
       {"", "{", "{\"patch_size\": \"16\"}", "{\"patch_size\": 0}", "{\"patch_size\": 5000000000}",
        "{\"merge_size\": -2}", "{\"temporal_patch_size\": 1.5}", "{\"image_mean\": [0.5, 0.5]}",
        "{\"image_mean\": 0.5}", "{\"image_std\": [1, 0, 1]}", "{\"image_std\": [1, \"a\", 1]}",
        "{\"size\": {\"shortest_edge\": 10, \"longest_edge\": 9}}", "{\"min_pixels\": 0}",
        "{\"max_pixels\": 1e300}", "{\"max_pixels\": 9223372036854775807}"}) {
    const auto config = Read(json);
    ASSERT_FALSE(config.ok()) << json;
    EXPECT_EQ(config.status().code(), StatusCode::kModel) << json;
    EXPECT_NE(config.status().message().find("preprocessor_config.json"), std::string::npos)
        << config.status().message();
  }
  EXPECT_EQ(ReadVisionConfig((folder_ / "absent").string()).status().code(), StatusCode::kModel);
}

}  // namespace
}  // namespace kuiper
