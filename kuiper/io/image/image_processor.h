// The public interface of this folder: converts files, bytes, data: URLs and videos to the input of
// the vision encoder. Created once per model; its methods may be called from any thread. Request
// handlers call it; it does not need the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"
#include "kuiper/io/image/resize.h"
#include "kuiper/io/image/vision_config.h"
#include "kuiper/io/image/vision_input.h"

namespace kuiper {

// The user's settings, which override the model's configuration.
struct ImageOptions {
  ImageLimits limits;
  std::optional<int64_t> min_pixels;              // images, after scaling
  std::optional<int64_t> max_pixels, max_tokens;  // per image or video frame
  ScalingOrder scaling = ScalingOrder::kPillow13;
};

class ImageProcessor {
 public:
  // Returns kInvalidArgument if configuration and options allow no size at all.
  static StatusOr<ImageProcessor> Create(const VisionConfig& config, const ImageOptions& options);

  const ImageOptions& options() const { return options_; }
  // The largest number of tokens of an image, unless it is very narrow.
  int64_t max_image_tokens() const {
    return config_.image_pixels.max / (int64_t{config_.factor()} * config_.factor());
  }

  // Errors of the functions below: kInput if the file cannot be read, is not an image or exceeds a
  // limit; kResourceExhausted if there is not enough memory.

  // Returns the image in full size, with its orientation applied.
  StatusOr<Picture> Open(const std::string& path) const;
  StatusOr<VisionInput> FromFile(const std::string& path) const;
  // `name` is the name of the image in messages.
  StatusOr<VisionInput> FromBytes(std::string_view bytes, const std::string& name) const;
  // `url` is a data: URL; nothing is downloaded.
  StatusOr<VisionInput> FromUrl(std::string_view url, const std::string& name) const;
  StatusOr<VisionInput> FromPicture(const Picture& picture, const std::string& name,
                                    const DecodingWatch& watch = {}) const;
  // FromBytes in two steps. Measure reads only the file's header and sets the numbers of tokens and
  // bytes of the image. Decode returns kUnavailable if the caller no longer waits.
  StatusOr<VisionInput> Measure(std::string_view bytes, const std::string& name) const;
  Status Decode(VisionInput* input, const DecodingWatch& watch) const;
  // The bytes that the patches take, whether or not the image has been decoded.
  size_t patch_bytes(const VisionInput& input) const {
    return static_cast<size_t>(input.grid.num_patches() * config_.patch_values()) * sizeof(float);
  }
  // Reads a folder of frames or an animated file. `fps`, if given, overrides the video's own rate;
  // kInvalidArgument if it is not positive.
  StatusOr<VisionInput> FromVideo(const std::string& path, std::optional<double> fps) const;

 private:
  ImageProcessor(const VisionConfig& config, const ImageOptions& options)
      : config_(config), options_(options) {}
  PixelBudget VideoBudget(int64_t num_frames) const;
  // Returns the size of an image after scaling.
  StatusOr<PictureSize> Fit(PictureSize size, const std::string& name) const;
  Status CheckTokens(PictureSize size, const std::string& name) const;

  VisionConfig config_;
  ImageOptions options_;
};

}  // namespace kuiper
