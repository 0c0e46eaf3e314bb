// Where pictures stand in the ids of a prompt: each token of a picture is a pad. Programs expand
// the placeholders of a chat template here; the engine checks what it is given. It reads no pixels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/image/vision_input.h"
#include "kuiper/io/tokenizer.h"

namespace kuiper {

// Ids by which a prompt tells where a picture stands.
struct PictureTokens {
  int32_t image_pad = -1, video_pad = -1;
  int32_t vision_start = -1, vision_end = -1;
};

// A frame: one image, or what of a video is shown at one time. Its tokens stand together, row by
// row.
struct FrameSize {
  int rows = 0, columns = 0;  // tokens
  int tokens() const { return rows * columns; }
};
inline FrameSize FrameSizeOf(const VisionInput& picture) {
  return {picture.grid.h / picture.merge_size, picture.grid.w / picture.merge_size};
}
inline bool IsVideo(const VisionInput& picture) {
  return !picture.seconds.empty();
}

// The prompt with as many pads as each picture has tokens, where it has one pad per picture, in the
// order of `pictures`. As Hugging Face's processor does, a video becomes, for each of its frames,
// the seconds, then the pads between vision_start and vision_end; where the pad stands between
// those already, all three make way. The seconds join the text before them, so that the ids are
// those of the whole text; `tokenizer` may be null if there is no video. kInvalidArgument when pads
// and pictures differ in number or kind.
StatusOr<std::vector<int32_t>> ExpandPictures(std::span<const int32_t> prompt,
                                              std::span<const VisionInput> pictures,
                                              const PictureTokens& ids, const Tokenizer* tokenizer);

// A frame in a prompt whose placeholders are expanded.
struct PlacedFrame {
  int picture = 0;  // index
  int frame = 0;    // of the picture
  int begin = 0;    // its first pad
};
// All frames in their order. kInvalidArgument, with the numbers, when the pads are not exactly
// those of the pictures.
StatusOr<std::vector<PlacedFrame>> PlaceFrames(std::span<const int32_t> prompt,
                                               std::span<const VisionInput> pictures,
                                               const PictureTokens& ids);

}  // namespace kuiper
