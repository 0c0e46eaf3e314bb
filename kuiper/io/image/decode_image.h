// Decodes image files: finds the format from the first bytes, decodes, and applies the orientation
// of the metadata. Pixels are those of Pillow after ImageOps.exif_transpose and transformers'
// convert_to_rgb.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

enum class ImageFormat { kJpeg, kPng, kGif, kWebp };

// Returns kInput "NAME is not a decodable image (...)" for any other format.
StatusOr<ImageFormat> FormatOf(const ImageFile& file);

// Returns the size as stored, from the header, without applying the orientation. kInput if there is
// none, or if the size exceeds the limits.
StatusOr<PictureSize> SizeOfImage(const ImageFile& file);

// kInput if the file is not an image, is damaged, or exceeds its limits; kUnavailable if the caller
// no longer waits for the image.
StatusOr<Picture> DecodeImage(const ImageFile& file);

// Returns the bytes of an image file. kInput if it cannot be read or is larger than the limit;
// `kind` is the kind of file in messages.
StatusOr<std::string> ReadImageFile(const std::string& path, const ImageLimits& limits,
                                    const std::string& kind = "image");

}  // namespace kuiper
