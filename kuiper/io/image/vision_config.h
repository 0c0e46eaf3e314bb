// The image settings of a vision model: processor_config.json of transformers 5, or
// preprocessor_config.json and video_preprocessor_config.json of older versions. Read once at load.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/io/image/resize.h"

namespace kuiper {

// The defaults are those of Qwen3-VL.
struct VisionConfig {
  int patch_size = 16;          // pixels per side
  int temporal_patch_size = 2;  // frames
  int merge_size = 2;           // patches per side that form one token
  std::array<float, 3> mean = {0.5f, 0.5f, 0.5f},
                       std = {0.5f, 0.5f, 0.5f};  // applied to values in [0, 1]
  PixelBudget image_pixels = {.min = 65536, .max = 16777216};
  PixelBudget video_pixels = {.min = 4096, .max = 25165824};  // sum over all frames
  // Rate at which frames are sampled, and the least and largest number of frames.
  double sampled_fps = 2;
  int min_frames = 4, max_frames = 768;

  // Sides of scaled pictures are multiples of this.
  int factor() const { return patch_size * merge_size; }
  int64_t patch_values() const {
    return int64_t{3} * temporal_patch_size * patch_size * patch_size;
  }
  // Returns kInvalidArgument if a field is out of range; `source` names the origin in the message.
  Status Check(const std::string& source) const;
};

// The contents of a model's files; empty if a file is absent.
struct ProcessorTexts {
  std::string both;            // processor_config.json
  std::string images, videos;  // preprocessor_config.json, video_preprocessor_config.json
};

// Reads the files of a model's folder. As in transformers, "image_processor" and "video_processor"
// of processor_config.json take precedence over the other files. Videos without settings use those
// of preprocessor_config.json. Absent settings keep their defaults. kModel if there are no image
// settings, or if settings are damaged or out of range.
StatusOr<VisionConfig> ReadVisionConfig(const std::string& model_dir);
// Reads the same settings from the texts of a container. Messages write `prefix` before a file
// name.
StatusOr<VisionConfig> ParseVisionConfig(const ProcessorTexts& texts, const std::string& prefix);

}  // namespace kuiper
