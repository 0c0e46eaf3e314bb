// A decoded picture, and what may be asked of a picture file before memory is given to it. Made by
// the decoders, read by what resizes; knows no model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

// 8 bits a channel.
struct Picture {
  int width = 0, height = 0;  // pixels
  std::vector<uint8_t> rgb;   // [height, width, 3]

  size_t row_bytes() const { return static_cast<size_t>(width) * 3; }
  uint8_t* row(int y) { return rgb.data() + static_cast<size_t>(y) * row_bytes(); }
  const uint8_t* row(int y) const { return rgb.data() + static_cast<size_t>(y) * row_bytes(); }
};

struct PictureSize {
  int64_t height = 0, width = 0;  // pixels
  bool operator==(const PictureSize&) const = default;
};

// Somebody who waits for a picture while it is read.
struct DecodingWatch {
  // Asked for each row of each step on the way, with the pixels that were decoded since the last
  // call: false when nobody waits any more. Empty: the picture is wanted to its end.
  std::function<bool(int64_t new_pixels)> go_on = {};

  bool GoOn(int64_t new_pixels = 0) const { return !go_on || go_on(new_pixels); }
};

// kUnavailable: reading ended because nobody waits for `name`.
Status NobodyWaits(const std::string& name);

// What a file may make a reader do. Defaults suit photographs of 100 megapixels; a server may want
// less.
struct ImageLimits {
  size_t max_file_bytes = 64 << 20;
  int64_t max_pixels = int64_t{1} << 27;  // width * height that a file may declare
  // Over all frames of a video or animation, read or skipped.
  int64_t max_video_pixels = int64_t{1} << 32;
  int max_frames = 1 << 16;  // in a video's folder or animation
};

// The bytes of a picture file, not owned, and what messages call it.
struct ImageFile {
  std::string_view bytes;
  std::string name;
  ImageLimits limits;
  DecodingWatch watch = {};

  // kInput: "NAME is not a decodable image: FORMAT, REASON".
  Status Undecodable(std::string_view format, std::string_view reason) const;
  // NobodyWaits, where that is why reading ended.
  Status Stopped(std::string_view format, std::string_view reason) const {
    return watch.GoOn() ? Undecodable(format, reason) : NobodyWaits(name);
  }
  // kInput when a side is not positive or there are more pixels than the limit.
  Status CheckSize(int64_t width, int64_t height) const;
  // A black picture of a size that passes the check. kResourceExhausted when there is no memory.
  StatusOr<Picture> NewPicture(int64_t width, int64_t height) const;
};

// Lays `num_pixels` RGBA pixels on white as RGB, rounded as Pillow's Image.alpha_composite. The two
// may begin at the same byte.
void LayOnWhite(const uint8_t* rgba, size_t num_pixels, uint8_t* rgb);

// `bytes` zeros; kResourceExhausted when there is no memory for `what`.
StatusOr<std::vector<uint8_t>> NewBytes(size_t bytes, const std::string& what,
                                        const DecodingWatch& watch = {});
// Replaces `values` with `count` zeros. Returns false when nobody waits any more; throws bad_alloc.
// The memory is touched in steps, because the system takes a while to provide it.
template <typename T>
bool MakeZeros(size_t count, const DecodingWatch& watch, std::vector<T>* values) {
  constexpr size_t kStep = (4 << 20) / sizeof(T);
  values->clear();
  values->reserve(count);
  while (values->size() < count) {
    if (!watch.GoOn()) return false;
    values->resize(std::min(count, values->size() + kStep));
  }
  return true;
}

}  // namespace kuiper
