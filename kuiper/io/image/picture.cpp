#include "kuiper/io/image/picture.h"

#include <new>
#include <utility>

#include "kuiper/base/text.h"

namespace kuiper {

StatusOr<std::vector<uint8_t>> NewBytes(size_t bytes, const std::string& what) {
  try {
    return std::vector<uint8_t>(bytes);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for " + what + ", which takes " + Megabytes(bytes),
                  "use a smaller picture");
  }
}

Status ImageFile::Undecodable(std::string_view format, std::string_view reason) const {
  std::string text = name + " is not a decodable image: ";
  text.append(format).append(", ").append(reason);
  return Status(StatusCode::kInput, std::move(text),
                "copy the file again, or save it again with an image editor");
}

StatusOr<Picture> ImageFile::NewPicture(int64_t width, int64_t height) const {
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
  Picture picture{.width = static_cast<int>(width), .height = static_cast<int>(height), .rgb = {}};
  KU_ASSIGN_OR_RETURN(picture.rgb, NewBytes(picture.row_bytes() * static_cast<size_t>(height),
                                            name + " (" + size + " pixels)"));
  return picture;
}

}  // namespace kuiper
