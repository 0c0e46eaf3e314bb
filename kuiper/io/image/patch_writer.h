// Scaled frames to patches: normalises colours and lays pixels out as VisionInput::patches has
// them, frame by frame, and digests what it is given.
#pragma once

#include <array>

#include "kuiper/base/sha256.h"
#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"
#include "kuiper/io/image/resize.h"
#include "kuiper/io/image/vision_config.h"
#include "kuiper/io/image/vision_input.h"

namespace kuiper {

// The grid of `num_frames` frames of `size`, whose sides are multiples of config.factor().
PatchGrid GridOf(const VisionConfig& config, int num_frames, PictureSize size);

class PatchWriter {
 public:
  // For `num_frames` frames of `size`, whose sides are multiples of config.factor(). Makes room in
  // `input` for their patches and sets its grid. kResourceExhausted when there is no memory;
  // kUnavailable when nobody waits any more.
  static StatusOr<PatchWriter> Create(const VisionConfig& config, int num_frames, PictureSize size,
                                      VisionInput* input, const DecodingWatch& watch = {});

  // The next frame. The last one fills what is left of its group of temporal_patch_size.
  // kUnavailable as above.
  Status Add(const Picture& frame);
  // After the last frame: sets the digest.
  void Finish();

 private:
  PatchWriter(const VisionConfig& config, int num_frames, VisionInput* input,
              const DecodingWatch& watch);
  // `place` is that of the frame within its group.
  bool Write(const Picture& frame, int group, int place);

  int patch_size_, temporal_, merge_;
  int num_frames_;
  int frame_ = 0;
  VisionInput* input_;
  DecodingWatch watch_;
  Sha256 sha_;
  std::array<std::array<float, 256>, 3> values_;  // of each colour's pixels
};

}  // namespace kuiper
