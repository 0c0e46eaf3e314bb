// The vision tower of Qwen3-VL as vision_config of a config.json describes it, checked and turned
// into numbers. Read by config.cpp; what pictures become before the tower is io/image's.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

class ConfigReader;

struct VisionTowerConfig {
  static constexpr int kChannels = 3;

  int hidden = 0;
  int depth = 0;
  int heads = 0;
  int intermediate = 0;
  int out_hidden = 0;  // hidden_size of the text model
  int patch = 16;      // pixels, both sides
  int temporal_patch = 2;
  int merge = 2;                      // patches, both sides, that become a token
  int position_side = 0;              // the table of positions has so many rows and columns
  std::vector<int> deepstack_blocks;  // blocks whose output goes to a merger of its own, ascending

  int head_dim() const { return hidden / heads; }
  int patch_values() const { return kChannels * temporal_patch * patch * patch; }
  int merge_unit() const { return merge * merge; }
  int merged_hidden() const { return merge_unit() * hidden; }
  int num_deepstack() const { return static_cast<int>(deepstack_blocks.size()); }
};

// The ids by which prompts speak of pictures.
struct VisionTokens {
  int32_t image_pad = 0;     // one for each token of an image
  int32_t video_pad = 0;     // one for each token of a video
  int32_t vision_start = 0;  // before the pads of an image, or of a frame of a video
  int32_t vision_end = 0;    // behind them
};

// Reads the object vision_config; kModel with a line that names the key.
StatusOr<VisionTowerConfig> ReadVisionTower(ConfigReader& reader, int text_hidden, int text_layers);

}  // namespace kuiper
