// Sizes that a vision model takes, and the scaling of pictures to them: smart_resize and the
// antialiased bicubic filter of Hugging Face's processors. Called by ImageProcessor.
#pragma once

#include <cstdint>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

// Pixels that a picture has after scaling; of videos those of all frames together. Not exact: sides
// are multiples of a patch, and a narrow picture keeps a side of one.
struct PixelBudget {
  int64_t min = 0, max = 0;
};

// Hugging Face refuses pictures that are longer than this many times their width.
constexpr int64_t kMaxAspectRatio = 200;

// The size, in multiples of `factor`, nearest to `size` within the budget. kInput when the sides
// differ by more than kMaxAspectRatio; `name` is what the message calls the picture.
StatusOr<PictureSize> FitPicture(PictureSize size, int64_t factor, PixelBudget budget,
                                 const std::string& name);
// The same for each of `num_frames` frames that make up groups of `temporal_factor`; kInput as well
// when there are fewer frames than that, or a side is shorter than `factor`.
StatusOr<PictureSize> FitVideo(int64_t num_frames, PictureSize size, int64_t factor,
                               int64_t temporal_factor, PixelBudget budget,
                               const std::string& name);

// Whether rows or columns are scaled first. Pixels are rounded in between, so that some differ
// by 1.
enum class ScalingOrder {
  kPillow13,  // columns first if the height shrinks by more than twice what the width shrinks by
  kPillow12,  // rows first, as in all older versions
};

// Bicubic (a = -1/2), the filter as wide as the picture shrinks, in integers: the bytes of Pillow's
// Image.resize. kResourceExhausted when there is no memory.
StatusOr<Picture> Resize(const Picture& picture, PictureSize to, ScalingOrder order,
                         const DecodingWatch& watch = {});

}  // namespace kuiper
