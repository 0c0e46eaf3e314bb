// A decoded image, and the limits of image files that are checked before memory is allocated.
// Created by the decoders, read by the scaling; independent of any model.
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

// 8 bits per channel.
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

// Lets a caller that no longer waits for an image stop the decoding.
struct DecodingWatch {
  // Called for each row of each step, with the number of pixels decoded since the last call.
  // Returns false if the caller no longer waits. Empty: decoding runs to its end.
  std::function<bool(int64_t new_pixels)> may_continue = {};

  bool MayContinue(int64_t new_pixels = 0) const {
    return !may_continue || may_continue(new_pixels);
  }
};

// Returns kUnavailable: decoding stopped because the caller no longer waits for `name`.
Status DecodingStopped(const std::string& name);

// Limits on what a file may demand. Defaults suit photographs of 100 megapixels; a server may use
// smaller ones.
struct ImageLimits {
  size_t max_file_bytes = 64 << 20;
  int64_t max_pixels = int64_t{1} << 27;  // width * height that a file may declare
  // Sum over all frames of a video or animation, read or skipped.
  int64_t max_video_pixels = int64_t{1} << 32;
  int max_frames = 1 << 16;  // in a video's folder or an animation
};

// The bytes of an image file, not owned, and its name in messages.
struct ImageFile {
  std::string_view bytes;
  std::string name;
  ImageLimits limits;
  DecodingWatch watch = {};

  // kInput: "NAME is not a decodable image: FORMAT, REASON".
  Status Undecodable(std::string_view format, std::string_view reason) const;
  // Returns DecodingStopped if that is the reason, otherwise Undecodable.
  Status Stopped(std::string_view format, std::string_view reason) const {
    return watch.MayContinue() ? Undecodable(format, reason) : DecodingStopped(name);
  }
  // Returns kInput if a side is not positive or there are more pixels than the limit.
  Status CheckSize(int64_t width, int64_t height) const;
  // Returns a black picture after CheckSize. kResourceExhausted if there is not enough memory.
  StatusOr<Picture> NewPicture(int64_t width, int64_t height) const;
};

// Lays `num_pixels` RGBA pixels on white as RGB, rounded as Pillow's Image.alpha_composite. `rgba`
// and `rgb` may be equal.
void LayOnWhite(const uint8_t* rgba, size_t num_pixels, uint8_t* rgb);

// Returns `bytes` zeros; kResourceExhausted if there is not enough memory for `what`.
StatusOr<std::vector<uint8_t>> NewBytes(size_t bytes, const std::string& what,
                                        const DecodingWatch& watch = {});
// Replaces `values` with `count` zeros. Returns false if the caller no longer waits; throws
// bad_alloc. Touches the memory in steps, because the system takes a while to provide it.
template <typename T>
bool MakeZeros(size_t count, const DecodingWatch& watch, std::vector<T>* values) {
  constexpr size_t kStep = (4 << 20) / sizeof(T);
  values->clear();
  values->reserve(count);
  while (values->size() < count) {
    if (!watch.MayContinue()) return false;
    values->resize(std::min(count, values->size() + kStep));
  }
  return true;
}

}  // namespace kuiper
