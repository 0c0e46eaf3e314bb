// The vision encoder of Qwen3-VL: vision_config of a config.json, checked and converted to numbers.
// config.cpp calls the reader. Preprocessing of images is in io/image.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

class ConfigReader;

struct VisionEncoderConfig {
  static constexpr int kChannels = 3;

  int hidden = 0;
  int depth = 0;
  int heads = 0;
  int intermediate = 0;
  int out_hidden = 0;  // hidden_size of the text model
  int patch = 16;      // side of a patch in pixels
  int temporal_patch = 2;
  int merge = 2;          // merge * merge patches become one token
  int position_side = 0;  // side of the square position table, in positions
  // Ascending indices of the blocks whose output goes to a deepstack merger.
  std::vector<int> deepstack_blocks;

  int head_dim() const { return hidden / heads; }
  int patch_values() const { return kChannels * temporal_patch * patch * patch; }
  int merge_unit() const { return merge * merge; }
  int merged_hidden() const { return merge_unit() * hidden; }
  int num_deepstack() const { return static_cast<int>(deepstack_blocks.size()); }
};

// Token ids that represent images and videos in prompts.
struct VisionTokens {
  int32_t image_pad = 0;     // placeholder, one for each token of an image
  int32_t video_pad = 0;     // placeholder, one for each token of a video
  int32_t vision_start = 0;  // before the placeholders of an image or of a video frame
  int32_t vision_end = 0;    // after the placeholders
};

// Reads the object vision_config. Returns kModel, with a line that names the key, on errors.
StatusOr<VisionEncoderConfig> ReadVisionEncoderConfig(ConfigReader& reader, int text_hidden,
                                                      int text_layers);

}  // namespace kuiper
