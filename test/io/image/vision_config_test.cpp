#include "kuiper/io/image/vision_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

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

// Checks the file of transformers 5, alone and together with the files of older versions.
TEST_F(VisionConfigTest, ProcessorConfigCountsFirst) {
  const auto write = [&](const std::string& name, const std::string& json) {
    std::ofstream(folder_ / name) << json;
  };
  using Pixels = std::pair<int64_t, int64_t>;  // budgets of images and of videos
  const auto pixels = [&] {
    const auto config = ReadVisionConfig(folder_.string());
    EXPECT_TRUE(config.ok()) << config.status().message();
    return Pixels(config->image_pixels.max, config->video_pixels.max);
  };
  const std::string both =
      R"({"image_processor": {"size": {"longest_edge": 70000}, "patch_size": 14},
                               "video_processor": {"size": {"longest_edge": 80000}, "fps": 3},
                               "processor_class": "Qwen3VLProcessor"})";
  write("processor_config.json", both);
  EXPECT_EQ(pixels(), Pixels(70000, 80000));
  EXPECT_EQ(ReadVisionConfig(folder_.string())->patch_size, 14);
  EXPECT_EQ(ReadVisionConfig(folder_.string())->sampled_fps, 3);
  write("preprocessor_config.json", R"({"size": {"longest_edge": 90000}, "patch_size": 28})");
  write("video_preprocessor_config.json", R"({"size": {"longest_edge": 95000}})");
  EXPECT_EQ(pixels(), Pixels(70000, 80000));
  // Each part that is absent is read from the older files.
  write("processor_config.json", R"({"image_processor": {"max_pixels": 71000}})");
  EXPECT_EQ(pixels(), Pixels(71000, 95000));
  write("processor_config.json", R"({"video_processor": {"max_pixels": 81000}})");
  EXPECT_EQ(pixels(), Pixels(90000, 81000));
  write("processor_config.json", R"({"processor_class": "Qwen3VLProcessor"})");
  EXPECT_EQ(pixels(), Pixels(90000, 95000));
  write("processor_config.json", R"({"image_processor": null, "video_processor": null})");
  EXPECT_EQ(pixels(), Pixels(90000, 95000));
  // Videos without settings use those of preprocessor_config.json.
  std::filesystem::remove(folder_ / "video_preprocessor_config.json");
  EXPECT_EQ(pixels(), Pixels(90000, 90000));
  // The same settings from a container.
  const auto carried =
      ParseVisionConfig({.both = both, .images = "{}", .videos = "{}"}, "model.bin, ");
  ASSERT_TRUE(carried.ok());
  EXPECT_EQ(carried->image_pixels.max, 70000);
}

TEST_F(VisionConfigTest, SaysWhatIsWrongWithProcessorConfig) {
  const auto message = [&](const std::string& json) {
    std::ofstream(folder_ / "processor_config.json") << json;
    const auto config = ReadVisionConfig(folder_.string());
    EXPECT_EQ(config.status().code(), StatusCode::kModel);
    return config.ok() ? "" : config.status().message().substr(folder_.string().size() + 1);
  };
  EXPECT_EQ(message("{}"),
            "preprocessor_config.json is missing, and so is \"image_processor\" in "
            "processor_config.json");
  EXPECT_EQ(message(R"({"image_processor": []})"),
            "processor_config.json, image_processor is not an object");
  EXPECT_EQ(message(R"({"image_processor": {"patch_size": "16"}})"),
            "processor_config.json, image_processor: \"patch_size\" is not a whole number");
  EXPECT_EQ(message(R"({"image_processor": {}, "video_processor": {"fps": []}})"),
            "processor_config.json, video_processor: \"fps\" is not a number");
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
