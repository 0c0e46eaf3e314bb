// What the patches of a frame get besides their pixels: positions for the rotation, and rows of the
// table of positions with their weights. Pure host functions of the grid, equal to transformers'
// rot_pos_emb and fast_pos_embed_interpolate. The encoder uploads them with each pass.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/model/vision_config.h"

namespace kuiper {

// Rows of the table that a patch is interpolated from.
inline constexpr int kCorners = 4;

// Where the numbers of the patches of a frame go, N of them, in merge-block order.
struct VisionLayout {
  int32_t* rows = nullptr;     // [N], of the grid
  int32_t* columns = nullptr;  // [N]
  int32_t* corners = nullptr;  // [N, kCorners], rows of the table
  float* weights = nullptr;    // [N, kCorners]
};

// The frame's grid has h * w patches, both multiples of config.merge.
void LayOutFrame(const VisionTowerConfig& config, int h, int w, const VisionLayout& to);

// The rotations [positions, head_dim] as RopeTable has them: the first half of a head's pairs turn
// by the row, the others, with the same angles, by the column.
std::vector<float> VisionCosSin(int head_dim, int positions);
std::vector<int32_t> VisionAxes(int head_dim);

}  // namespace kuiper
