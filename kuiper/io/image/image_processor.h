// The face of this folder: files, bytes, data: URLs and videos to what a vision tower takes. Made
// once per model; its methods may be called from any thread. Whoever answers requests calls it, the
// model is not needed for it.
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

// What a user asks for, over what the model's configuration says.
struct ImageOptions {
  ImageLimits limits;
  std::optional<int64_t> min_pixels;              // of images, after scaling
  std::optional<int64_t> max_pixels, max_tokens;  // of an image, or of a frame of a video
  ScalingOrder scaling = ScalingOrder::kPillow13;
};

class ImageProcessor {
 public:
  // kInvalidArgument when configuration and options leave no size that is allowed.
  static StatusOr<ImageProcessor> Create(const VisionConfig& config, const ImageOptions& options);

  const ImageOptions& options() const { return options_; }
  // What an image becomes at most, unless it is very narrow.
  int64_t most_tokens() const {
    return config_.image_pixels.max / (int64_t{config_.factor()} * config_.factor());
  }

  // Errors of all: kInput when the file cannot be read, is no picture or beyond a limit;
  // kResourceExhausted when there is no memory.

  // A picture in full size, the right way up.
  StatusOr<Picture> Open(const std::string& path) const;
  StatusOr<VisionInput> FromFile(const std::string& path) const;
  // `name` is what messages call the picture.
  StatusOr<VisionInput> FromBytes(std::string_view bytes, const std::string& name) const;
  // `url` is a data: URL; nothing is fetched.
  StatusOr<VisionInput> FromUrl(std::string_view url, const std::string& name) const;
  StatusOr<VisionInput> FromPicture(const Picture& picture, const std::string& name,
                                    const DecodingWatch& watch = {}) const;
  // FromBytes in two steps. The first one reads no more than the file's header, and knows how many
  // tokens and bytes the picture takes. kUnavailable when nobody waits for the second one any more.
  StatusOr<VisionInput> Measure(std::string_view bytes, const std::string& name) const;
  Status Decode(VisionInput* input, const DecodingWatch& watch) const;
  // The bytes that the patches take, whether or not the image is decoded already.
  size_t patch_bytes(const VisionInput& input) const {
    return static_cast<size_t>(input.grid.num_patches() * config_.patch_values()) * sizeof(float);
  }
  // A folder of frames or an animated file. `fps` is the video's, where it does not say or says
  // otherwise; kInvalidArgument when not positive.
  StatusOr<VisionInput> FromVideo(const std::string& path, std::optional<double> fps) const;

 private:
  ImageProcessor(const VisionConfig& config, const ImageOptions& options)
      : config_(config), options_(options) {}
  PixelBudget VideoBudget(int64_t num_frames) const;
  // The size of an image after scaling.
  StatusOr<PictureSize> Fit(PictureSize size, const std::string& name) const;
  Status CheckTokens(PictureSize size, const std::string& name) const;

  VisionConfig config_;
  ImageOptions options_;
};

}  // namespace kuiper
