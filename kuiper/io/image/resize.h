// Chooses the sizes that a vision model accepts and scales images to them: smart_resize and the
// antialiased bicubic filter of Hugging Face's processors. Called by ImageProcessor.
#pragma once

#include <cstdint>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

// Number of pixels after scaling; for a video, the sum over all frames. Approximate: sides are
// multiples of a patch, and a narrow image keeps one patch as its shorter side.
struct PixelBudget {
  int64_t min = 0, max = 0;
};

// Hugging Face refuses images whose longer side exceeds this many times the shorter one.
constexpr int64_t kMaxAspectRatio = 200;

// Returns the size nearest to `size`, in multiples of `factor`, within the budget. kInput if the
// sides differ by more than kMaxAspectRatio; `name` is the image's name in messages.
StatusOr<PictureSize> FitPicture(PictureSize size, int64_t factor, PixelBudget budget,
                                 const std::string& name);
// Does what FitPicture does, for each of `num_frames` frames in groups of `temporal_factor`. Also
// kInput if there are fewer frames than a group, or if a side is shorter than `factor`.
StatusOr<PictureSize> FitVideo(int64_t num_frames, PictureSize size, int64_t factor,
                               int64_t temporal_factor, PixelBudget budget,
                               const std::string& name);

// Whether rows or columns are scaled first. Pixels are rounded in between, so some results differ
// by 1.
enum class ScalingOrder {
  kPillow13,  // columns first if the height shrinks by more than twice what the width shrinks by
  kPillow12,  // rows first, as in all older versions
};

// Scales bicubically (a = -1/2) in integers, with a filter that widens as the image shrinks. Gives
// the bytes of Pillow's Image.resize. kResourceExhausted if there is not enough memory.
StatusOr<Picture> Resize(const Picture& picture, PictureSize to, ScalingOrder order,
                         const DecodingWatch& watch = {});

}  // namespace kuiper
