// Finds the intended orientation of an image and applies it, as Pillow's ImageOps.exif_transpose
// does.
#pragma once

#include <string_view>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

// Returns the Orientation tag, 1 to 8 (1: as stored), of the EXIF block, or if it has none of the
// XMP packet. Returns 1 if neither has a readable tag.
int OrientationOf(std::string_view exif, std::string_view xmp);

// kResourceExhausted if there is not enough memory for the turned picture.
StatusOr<Picture> Oriented(Picture picture, int orientation, const DecodingWatch& watch = {});

}  // namespace kuiper
