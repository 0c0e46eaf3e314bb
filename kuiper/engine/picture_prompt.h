// Positions of pictures in the ids of a prompt: each token of a picture is a placeholder token
// (pad). Programs expand the placeholders of a chat template here; the engine checks its input. No
// pixels are read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/override_span.h"
#include "kuiper/io/image/vision_input.h"
#include "kuiper/io/tokenizer.h"
#include "kuiper/model/vision_config.h"

namespace kuiper {

// A frame: one image, or one time step of a video. Its tokens are contiguous, row by row.
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

// Expands the one pad per picture to as many pads as the picture has tokens. Pads are in the order
// of `pictures`. As in Hugging Face's processor, each frame of a video becomes its time in seconds,
// then its pads between vision_start and vision_end. If the video's pad already stands between
// those two, they are replaced with it. The seconds are tokenised together with the text before
// them, so that the ids are those of the whole text. `tokenizer` may be null if there is no video.
// kInvalidArgument if pads and pictures differ in number or kind.
StatusOr<std::vector<int32_t>> ExpandPictures(std::span<const int32_t> prompt,
                                              std::span<const VisionInput> pictures,
                                              const VisionTokens& ids, const Tokenizer* tokenizer);

// A frame in a prompt with expanded placeholders.
struct PlacedFrame {
  int picture = 0;  // index
  int frame = 0;    // index within the picture
  int begin = 0;    // index of its first pad in the prompt
};
// Returns all frames in order. kInvalidArgument, with the numbers, if the pads do not match the
// pictures exactly.
StatusOr<std::vector<PlacedFrame>> PlaceFrames(std::span<const int32_t> prompt,
                                               std::span<const VisionInput> pictures,
                                               const VisionTokens& ids);

// What a sequence stores of its pictures.
struct PromptPictures {
  std::vector<OverrideSpan> spans;
  // Entries for Sequence::keys. The key of a picture token is a hash of its row and one half of
  // the picture's digest. Rows use the two halves alternately, so that two consecutive tokens
  // identify the whole digest.
  std::vector<uint64_t> keys;
  std::vector<int64_t> sources;  // without duplicates
};
// `sources`: the source of each picture.
PromptPictures PromptPicturesOf(std::span<const int32_t> prompt,
                                std::span<const PlacedFrame> frames,
                                std::span<const VisionInput> pictures,
                                std::span<const int64_t> sources);

}  // namespace kuiper
