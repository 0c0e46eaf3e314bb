#include "kuiper/io/image/picture.h"

#include <new>
#include <utility>

#include "kuiper/base/text.h"

namespace kuiper {

Status DecodingStopped(const std::string& name) {
  return Status(StatusCode::kUnavailable,
                "decoding of " + name + " was stopped: no caller waits for it");
}

StatusOr<std::vector<uint8_t>> NewBytes(size_t bytes, const std::string& what,
                                        const DecodingWatch& watch) {
  try {
    std::vector<uint8_t> zeros;
    if (!MakeZeros(bytes, watch, &zeros)) return DecodingStopped(what);
    return zeros;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for " + what + ", which takes " + Megabytes(bytes),
                  "use a smaller picture");
  }
}

void LayOnWhite(const uint8_t* rgba, size_t num_pixels, uint8_t* rgb) {
  // Pillow's fixed-point arithmetic: 7 bits more than alpha * 255 needs, and shifts to divide by
  // 255.
  constexpr uint32_t kBits = 7;
  for (size_t i = 0; i < num_pixels; ++i, rgba += 4, rgb += 3) {
    const uint32_t alpha = rgba[3];
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t sum = ((rgba[c] * alpha + 255 * (255 - alpha)) << kBits) + (0x80 << kBits);
      rgb[c] = static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> kBits);
    }
  }
}

Status ImageFile::Undecodable(std::string_view format, std::string_view reason) const {
  std::string text = name + " is not a decodable image: ";
  text.append(format).append(", ").append(reason);
  return Status(StatusCode::kInput, std::move(text),
                "copy the file again, or save it again with an image editor");
}

Status ImageFile::CheckSize(int64_t width, int64_t height) const {
  const std::string size = std::to_string(width) + "x" + std::to_string(height);
  if (width <= 0 || height <= 0) {
    return Status(StatusCode::kInput,
                  name + " declares a picture of " + size + " pixels, which is empty",
                  "use another file");
  }
  if (width > limits.max_pixels / height) {
    return Status(StatusCode::kInput,
                  name + " declares " + size + " pixels, more than the limit of " +
                      std::to_string(limits.max_pixels),
                  "scale the picture down");
  }
  return OkStatus();
}

StatusOr<Picture> ImageFile::NewPicture(int64_t width, int64_t height) const {
  KU_RETURN_IF_ERROR(CheckSize(width, height));
  const std::string size = std::to_string(width) + "x" + std::to_string(height);
  Picture picture{.width = static_cast<int>(width), .height = static_cast<int>(height), .rgb = {}};
  KU_ASSIGN_OR_RETURN(picture.rgb, NewBytes(picture.row_bytes() * static_cast<size_t>(height),
                                            name + " (" + size + " pixels)", watch));
  return picture;
}

}  // namespace kuiper
