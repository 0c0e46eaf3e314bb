// The cost of decoding the images of a request, and the decoding itself. Callable from any thread.
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
  size_t num_bytes = 0;         // bytes of all pixel patches
  int64_t num_pixels = 0;       // pixels to decode; equal files count once
  int64_t largest_picture = 0;  // pixels of the largest image
};

// Adds up the cost of all images of the requests. The images must have been measured.
PictureCost CostOfPictures(const ImageProcessor& processor, const std::vector<Request>& requests);
// Returns an error if the images of a request exceed the limits, even when no other request runs.
std::optional<ApiError> PicturesTooLarge(const PictureCost& cost, const ServerSettings& settings);
// Decodes the images one after the other. kUnavailable if `watch` says that the client has left.
Status DecodePictures(const ImageProcessor& processor, const DecodingWatch& watch,
                      std::vector<Request>* requests);
// Adds the name of the field "messages" to the error of an image.
Status WithMessagesField(const Status& status);

}  // namespace kuiper
