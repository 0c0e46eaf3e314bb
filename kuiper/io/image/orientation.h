// Which way up a picture is meant to be, and turning it that way: what Pillow's
// ImageOps.exif_transpose does.
#pragma once

#include <string_view>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

// The tag Orientation, 1 to 8 (1: as stored), of an EXIF block, or else of an XMP packet. 1 when
// neither says so, and when what they say cannot be read.
int OrientationOf(std::string_view exif, std::string_view xmp);

// kResourceExhausted when there is no memory for the turned picture.
StatusOr<Picture> Oriented(Picture picture, int orientation, const DecodingWatch& watch = {});

}  // namespace kuiper
