// Picture files to pixels: finds the format by the first bytes, decodes, and turns the picture the
// way it is meant to be. Pixels are those of Pillow after ImageOps.exif_transpose and
// transformers' convert_to_rgb.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

enum class ImageFormat { kJpeg, kPng, kBmp, kGif, kWebp };

// kInput "NAME is not a decodable image (...)" when it is none of them.
StatusOr<ImageFormat> FormatOf(const ImageFile& file);

// The size as stored, from the header: which way up the picture is meant to be is not looked for.
// kInput when there is none, or the size is beyond the limits.
StatusOr<PictureSize> SizeOfImage(const ImageFile& file);

// kInput when the file is no picture, is damaged, or asks for more than its limits;
// kUnavailable when nobody waits for it any more.
StatusOr<Picture> DecodeImage(const ImageFile& file);

// The bytes of a picture file. kInput when it cannot be read or is larger than the limit; `kind`
// says what cannot be opened.
StatusOr<std::string> ReadImageFile(const std::string& path, const ImageLimits& limits,
                                    const std::string& kind = "image");

}  // namespace kuiper
