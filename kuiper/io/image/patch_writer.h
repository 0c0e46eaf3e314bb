// Converts scaled frames to patches, frame by frame: normalises colours, orders values as
// VisionInput::patches requires, and computes the digest.
#pragma once

#include <array>

#include "kuiper/base/sha256.h"
#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"
#include "kuiper/io/image/resize.h"
#include "kuiper/io/image/vision_config.h"
#include "kuiper/io/image/vision_input.h"

namespace kuiper {

// Returns the grid of `num_frames` frames of `size`, whose sides are multiples of config.factor().
PatchGrid GridOf(const VisionConfig& config, int num_frames, PictureSize size);

class PatchWriter {
 public:
  // For `num_frames` frames of `size`, whose sides are multiples of config.factor(). Allocates
  // their patches in `input` and sets its grid. kResourceExhausted if there is not enough memory;
  // kUnavailable if the caller no longer waits.
  static StatusOr<PatchWriter> Create(const VisionConfig& config, int num_frames, PictureSize size,
                                      VisionInput* input, const DecodingWatch& watch = {});

  // Adds the next frame. The last frame is repeated to fill its group of temporal_patch_size.
  // kUnavailable as above.
  Status Add(const Picture& frame);
  // Sets the digest. Call after the last frame.
  void Finish();

 private:
  PatchWriter(const VisionConfig& config, int num_frames, VisionInput* input,
              const DecodingWatch& watch);
  // `place` is the index of the frame within its group.
  bool Write(const Picture& frame, int group, int place);

  int patch_size_, temporal_, merge_;
  int num_frames_;
  int frame_ = 0;
  VisionInput* input_;
  DecodingWatch watch_;
  Sha256 sha_;
  std::array<std::array<float, 256>, 3> values_;  // normalised value of each byte, per colour
};

}  // namespace kuiper
