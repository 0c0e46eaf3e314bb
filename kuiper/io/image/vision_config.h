// How a vision model wants its pictures: what preprocessor_config.json and
// video_preprocessor_config.json say. Read once at load.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/io/image/resize.h"

namespace kuiper {

// Defaults are those of Qwen3-VL.
struct VisionConfig {
  int patch_size = 16;          // pixels, both sides
  int temporal_patch_size = 2;  // frames
  int merge_size = 2;           // patches, both sides, that become a token
  std::array<float, 3> mean = {0.5f, 0.5f, 0.5f}, std = {0.5f, 0.5f, 0.5f};  // of 0 to 1
  PixelBudget image_pixels = {.min = 65536, .max = 16777216};
  PixelBudget video_pixels = {.min = 4096, .max = 25165824};  // of all frames
  // Frames are taken at this rate, and so many at least and at most.
  double sampled_fps = 2;
  int min_frames = 4, max_frames = 768;

  // Sides of scaled pictures are multiples of this.
  int factor() const { return patch_size * merge_size; }
  int64_t patch_values() const {
    return int64_t{3} * temporal_patch_size * patch_size * patch_size;
  }
  // kInvalidArgument when a field is out of range; `source` is who says so.
  Status Check(const std::string& source) const;
};

// Of a model's folder; what a file does not say keeps its default, and the file of videos may be
// absent. kModel when a file is damaged or out of range.
StatusOr<VisionConfig> ReadVisionConfig(const std::string& model_dir);
// The same from texts that a container carries; `images` and `videos` are what messages call them.
// An empty text of videos is none.
StatusOr<VisionConfig> ParseVisionConfig(const std::string& images_json, const std::string& images,
                                         const std::string& videos_json, const std::string& videos);

}  // namespace kuiper
