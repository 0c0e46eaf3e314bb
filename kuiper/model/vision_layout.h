// Position data for the patches of a frame: positions for the rotation, and rows of the position
// table with their weights. Pure host functions of the grid, equal to transformers' rot_pos_emb and
// fast_pos_embed_interpolate. The encoder uploads the data with each pass.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/model/vision_config.h"

namespace kuiper {

// Number of table rows that a patch is interpolated from.
inline constexpr int kCorners = 4;

// Destination of the position data of a frame's N patches, in merge-block order.
struct VisionLayout {
  int32_t* rows = nullptr;     // [N], row in the grid
  int32_t* columns = nullptr;  // [N], column in the grid
  int32_t* corners = nullptr;  // [N, kCorners], rows of the position table
  float* weights = nullptr;    // [N, kCorners]
};

// The frame's grid has h * w patches, both multiples of config.merge.
void LayOutFrame(const VisionEncoderConfig& config, int h, int w, const VisionLayout& to);

// The rotations [positions, head_dim], as in RopeTable. The first half of a head's pairs rotates by
// the row, the second half, with the same angles, by the column.
std::vector<float> VisionCosSin(int head_dim, int positions);
std::vector<int32_t> VisionAxes(int head_dim);

}  // namespace kuiper
