// Where pictures stand in the ids of a prompt: each token of a picture is a pad. Programs expand
// the placeholders of a chat template here; the engine checks what it is given. It reads no pixels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/patch_span.h"
#include "kuiper/io/image/vision_input.h"
#include "kuiper/io/tokenizer.h"
#include "kuiper/model/vision_config.h"

namespace kuiper {

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
                                              const VisionTokens& ids, const Tokenizer* tokenizer);

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
                                               const VisionTokens& ids);

// What a sequence must know of its pictures.
struct PromptPatches {
  std::vector<PatchSpan> spans;
  // As Sequence::keys: a token of a picture is told by the picture's digest and its row in it. Rows
  // that follow each other have the digest's halves in turn, so two of them tell all of it.
  std::vector<uint64_t> keys;
  std::vector<int64_t> sources;  // each once
};
// `sources`: of each picture.
PromptPatches PatchesOf(std::span<const int32_t> prompt, std::span<const PlacedFrame> frames,
                        std::span<const VisionInput> pictures, std::span<const int64_t> sources);

}  // namespace kuiper
