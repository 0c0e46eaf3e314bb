// What the pictures of a request cost, before and while they are decoded. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"
#include "kuiper/io/image/image_processor.h"
#include "kuiper/server/api_error.h"
#include "kuiper/server/server_settings.h"

namespace kuiper {

struct PictureCost {
  size_t num_bytes = 0;         // of all patches
  int64_t num_pixels = 0;       // to be decoded; a picture that is there twice counts once
  int64_t largest_picture = 0;  // pixels
};

// Adds up the cost of all pictures of the requests, which must be measured already.
PictureCost CostOfPictures(const ImageProcessor& processor, const std::vector<Request>& requests);
// Why the pictures of a request are refused, whatever others do.
std::optional<ApiError> PicturesTooLarge(const PictureCost& cost, const ServerSettings& settings);
// Decodes one picture after the other. kUnavailable when nobody waits any more.
Status DecodePictures(const ImageProcessor& processor, const DecodingWatch& watch,
                      std::vector<Request>* requests);
// What is wrong with a picture, said of the field of the body that holds it.
Status OfMessages(const Status& status);

}  // namespace kuiper
