// What a vision tower is given for one image or video, made by ImageProcessor. Owns its values and
// knows no file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace kuiper {

// Patches in time, and down and across each frame.
struct PatchGrid {
  int t = 0, h = 0, w = 0;
  bool operator==(const PatchGrid&) const = default;
  int64_t num_patches() const { return int64_t{t} * h * w; }
};

struct VisionInput {
  // [grid.num_patches(), 3 * temporal_patch * patch * patch]: per patch colour, frame, y, x.
  // Patches that become one token stand together: t, then blocks of merge x merge in raster order,
  // then patches of a block in raster order.
  std::vector<float> patches;
  PatchGrid grid;
  int merge_size = 0;
  int patch_size = 0;  // pixels, both sides
  // Of videos: when each of the grid.t patches in time is shown. Empty for images.
  std::vector<double> seconds;
  // The first half of SHA-256 over grid, patch sizes and scaled pixels: equal digests mean equal
  // patches. Keys of caches.
  std::array<uint8_t, 16> digest = {};
  // The file of an image that is only measured: there are no patches and no digest yet, and sides
  // may be exchanged. ImageProcessor::Decode takes it.
  std::string undecoded = {};
  std::string source;         // what messages call it
  int width = 0, height = 0;  // pixels before scaling

  // Tokens of the text that stand for it.
  int64_t num_tokens() const { return grid.num_patches() / (int64_t{merge_size} * merge_size); }
};

}  // namespace kuiper
