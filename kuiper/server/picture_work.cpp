#include "kuiper/server/picture_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace kuiper {
namespace {

std::string Megapixels(int64_t num_pixels) {
  constexpr int64_t kMega = 1 << 20;
  return std::to_string((num_pixels + kMega - 1) / kMega);
}

}  // namespace

Status WithMessagesField(const Status& status) {
  if (status.ok() || status.code() == StatusCode::kUnavailable) return status;
  return Status(status.code(), Param("messages") + ": " + status.message(), status.hint());
}

std::optional<ApiError> PicturesTooLarge(const PictureCost& cost, const ServerSettings& settings) {
  const auto error = [](const std::string& what) {
    ApiError too_large = MakeError(400, "invalid_value", "messages: " + what);
    too_large.param = "messages";
    return too_large;
  };
  if (cost.num_pixels > settings.max_request_pixels) {
    return error("the pictures have " + Megapixels(cost.num_pixels) +
                 " megapixels together; this server takes " +
                 Megapixels(settings.max_request_pixels) + " in a request (" +
                 settings.access.spell("max_request_megapixels") +
                 "): scale them down, or send fewer");
  }
  if (cost.largest_picture > settings.max_decoding_pixels) {
    return error("a picture has " + Megapixels(cost.largest_picture) +
                 " megapixels; this server decodes " + Megapixels(settings.max_decoding_pixels) +
                 " at one time (" + settings.access.spell("max_decoding_megapixels") +
                 "): scale it down");
  }
  return std::nullopt;
}

PictureCost CostOfPictures(const ImageProcessor& processor, const std::vector<Request>& requests) {
  PictureCost cost;
  std::set<std::string_view> files;
  for (const Request& request : requests) {
    for (const VisionInput& image : request.images) {
      cost.num_bytes += processor.patch_bytes(image);
      if (!files.insert(image.undecoded).second) continue;
      const int64_t num_pixels = int64_t{image.width} * image.height;
      cost.num_pixels += num_pixels;
      cost.largest_picture = std::max(cost.largest_picture, num_pixels);
    }
  }
  return cost;
}

Status DecodePictures(const ImageProcessor& processor, const DecodingWatch& watch,
                      std::vector<Request>* requests) {
  std::map<std::string, const VisionInput*> decoded;  // by the bytes of the file
  for (Request& request : *requests) {
    for (VisionInput& image : request.images) {
      const auto [place, is_new] = decoded.try_emplace(image.undecoded, &image);
      if (is_new) {
        KU_RETURN_IF_ERROR(WithMessagesField(processor.Decode(&image, watch)));
      } else {
        image = *place->second;
      }
    }
  }
  return OkStatus();
}

}  // namespace kuiper
