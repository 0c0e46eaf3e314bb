// The vision encoder's input for one image or video, created by ImageProcessor. Owns its values;
// independent of files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace kuiper {

// Numbers of patches in time, and down and across each frame.
struct PatchGrid {
  int t = 0, h = 0, w = 0;
  bool operator==(const PatchGrid&) const = default;
  int64_t num_patches() const { return int64_t{t} * h * w; }
};

struct VisionInput {
  // [grid.num_patches(), 3 * temporal_patch * patch * patch]; values of a patch in the order
  // colour, frame, y, x. Patches of one token are adjacent: by t, then blocks of merge x merge in
  // raster order, then patches of a block in raster order.
  std::vector<float> patches;
  PatchGrid grid;
  int merge_size = 0;
  int patch_size = 0;  // pixels per side
  // Videos: the time at which each of the grid.t temporal patches is shown. Empty for images.
  std::vector<double> seconds;
  // The first half of SHA-256 over grid, patch sizes and scaled pixels; serves as a cache key.
  // Equal digests mean equal patches.
  std::array<uint8_t, 16> digest = {};
  // The file of an image that has only been measured: it has no patches and no digest yet, and
  // width and height may be exchanged. Input of ImageProcessor::Decode.
  std::string undecoded = {};
  std::string source;         // its name in messages
  int width = 0, height = 0;  // pixels before scaling

  // Number of placeholder tokens in the text.
  int64_t num_tokens() const { return grid.num_patches() / (int64_t{merge_size} * merge_size); }
};

}  // namespace kuiper
