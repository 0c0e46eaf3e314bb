#include "kuiper/io/image/image_processor.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kuiper/base/text.h"
#include "kuiper/io/image/data_url.h"
#include "kuiper/io/image/decode_image.h"
#include "kuiper/io/image/frame_sampling.h"
#include "kuiper/io/image/patch_writer.h"
#include "kuiper/io/image/resize.h"
#include "kuiper/io/image/video_frames.h"

namespace kuiper {

StatusOr<ImageProcessor> ImageProcessor::Create(const VisionConfig& config,
                                                const ImageOptions& options) {
  VisionConfig changed = config;
  PixelBudget& budget = changed.image_pixels;
  budget.min = options.min_pixels.value_or(budget.min);
  budget.max = options.max_pixels.value_or(budget.max);
  // The user's maximum takes precedence over the model's minimum.
  if (!options.min_pixels.has_value()) budget.min = std::min(budget.min, budget.max);
  KU_RETURN_IF_ERROR(changed.Check("image sizes"));
  if (options.max_tokens.has_value()) {
    if (*options.max_tokens < 1) {
      return Status(StatusCode::kInvalidArgument,
                    Param("image_max_tokens") + " is not positive, and an image takes a token");
    }
    const int64_t token_pixels = int64_t{changed.factor()} * changed.factor();
    if (*options.max_tokens <= budget.max / token_pixels) {
      budget.max = *options.max_tokens * token_pixels;
    }
    budget.min = std::min(budget.min, budget.max);
  }
  return ImageProcessor(changed, options);
}

// Returns the budget of all frames together.
PixelBudget ImageProcessor::VideoBudget(int64_t num_frames) const {
  PixelBudget budget = config_.video_pixels;
  const int64_t token_pixels = int64_t{config_.factor()} * config_.factor();
  const int64_t groups = std::max<int64_t>(num_frames / config_.temporal_patch_size, 1);
  const int64_t pixels_of_a_token = token_pixels * groups * config_.temporal_patch_size;
  const int64_t most_tokens =
      std::min(options_.max_tokens.value_or(INT64_MAX),
               std::max<int64_t>(options_.max_pixels.value_or(INT64_MAX) / token_pixels, 1));
  if (most_tokens <= budget.max / pixels_of_a_token) budget.max = most_tokens * pixels_of_a_token;
  budget.min = std::min(budget.min, budget.max);
  return budget;
}

Status ImageProcessor::CheckTokens(PictureSize size, const std::string& name) const {
  const int64_t num_tokens = size.height / config_.factor() * (size.width / config_.factor());
  if (num_tokens <= options_.max_tokens.value_or(num_tokens)) return OkStatus();
  return Status(StatusCode::kInput,
                name + " is so narrow that it takes " + Counted(num_tokens, "token") +
                    ", more than " + Param("image_max_tokens"),
                "cut it into pieces, or allow more tokens");
}

StatusOr<Picture> ImageProcessor::Open(const std::string& path) const {
  KU_ASSIGN_OR_RETURN(const std::string bytes, ReadImageFile(path, options_.limits));
  return DecodeImage({.bytes = bytes, .name = path, .limits = options_.limits});
}

StatusOr<VisionInput> ImageProcessor::FromFile(const std::string& path) const {
  KU_ASSIGN_OR_RETURN(const Picture picture, Open(path));
  return FromPicture(picture, path);
}

StatusOr<VisionInput> ImageProcessor::FromBytes(std::string_view bytes,
                                                const std::string& name) const {
  KU_ASSIGN_OR_RETURN(VisionInput input, Measure(bytes, name));
  KU_RETURN_IF_ERROR(Decode(&input, {}));
  return input;
}

StatusOr<VisionInput> ImageProcessor::Measure(std::string_view bytes,
                                              const std::string& name) const {
  KU_ASSIGN_OR_RETURN(const PictureSize stored,
                      SizeOfImage({.bytes = bytes, .name = name, .limits = options_.limits}));
  KU_ASSIGN_OR_RETURN(const PictureSize size, Fit(stored, name));
  VisionInput input;
  input.source = name;
  input.width = static_cast<int>(stored.width);
  input.height = static_cast<int>(stored.height);
  input.grid = GridOf(config_, 1, size);
  input.merge_size = config_.merge_size;
  input.patch_size = config_.patch_size;
  input.undecoded = bytes;
  return input;
}

Status ImageProcessor::Decode(VisionInput* input, const DecodingWatch& watch) const {
  const ImageFile file{
      .bytes = input->undecoded, .name = input->source, .limits = options_.limits, .watch = watch};
  KU_ASSIGN_OR_RETURN(const Picture picture, DecodeImage(file));
  KU_ASSIGN_OR_RETURN(VisionInput decoded, FromPicture(picture, input->source, watch));
  if (decoded.num_tokens() != input->num_tokens()) {
    return file.Undecodable("picture", "its size differs from that in its header");
  }
  *input = std::move(decoded);
  return OkStatus();
}

StatusOr<VisionInput> ImageProcessor::FromUrl(std::string_view url, const std::string& name) const {
  KU_ASSIGN_OR_RETURN(const std::string bytes,
                      DecodeImageUrl(url, options_.limits.max_file_bytes, name));
  return FromBytes(bytes, name);
}

StatusOr<PictureSize> ImageProcessor::Fit(PictureSize size, const std::string& name) const {
  KU_ASSIGN_OR_RETURN(const PictureSize fitting,
                      FitPicture(size, config_.factor(), config_.image_pixels, name));
  KU_RETURN_IF_ERROR(CheckTokens(fitting, name));
  return fitting;
}

StatusOr<VisionInput> ImageProcessor::FromPicture(const Picture& picture, const std::string& name,
                                                  const DecodingWatch& watch) const {
  VisionInput input;
  input.source = name;
  input.width = picture.width;
  input.height = picture.height;
  KU_ASSIGN_OR_RETURN(const PictureSize size, Fit({picture.height, picture.width}, name));
  KU_ASSIGN_OR_RETURN(const Picture scaled, Resize(picture, size, options_.scaling, watch));
  KU_ASSIGN_OR_RETURN(PatchWriter writer, PatchWriter::Create(config_, 1, size, &input, watch));
  KU_RETURN_IF_ERROR(writer.Add(scaled));
  writer.Finish();
  return input;
}

StatusOr<VisionInput> ImageProcessor::FromVideo(const std::string& path,
                                                std::optional<double> fps) const {
  if (fps.has_value() && !(*fps > 0 && std::isfinite(*fps))) {
    return Status(StatusCode::kInvalidArgument, "a video's frames per second are not positive");
  }
  KU_ASSIGN_OR_RETURN(const VideoFrames frames, VideoFrames::Open(path, options_.limits));
  const double rate = fps.value_or(frames.fps().value_or(kDefaultFps));
  const std::vector<int> indices = SampledFrames(config_, frames.num_frames(), rate);
  VisionInput input;
  input.source = path;
  input.seconds = GroupSeconds(indices, config_.temporal_patch_size, rate);
  std::optional<PatchWriter> writer;
  PictureSize size;
  // The first frame determines the size of all.
  const auto add = [&](const Picture& frame) -> Status {
    if (!writer.has_value()) {
      input.width = frame.width;
      input.height = frame.height;
      const int num_frames = static_cast<int>(indices.size());
      KU_ASSIGN_OR_RETURN(size,
                          FitVideo(num_frames, {frame.height, frame.width}, config_.factor(),
                                   config_.temporal_patch_size, VideoBudget(num_frames), path));
      KU_RETURN_IF_ERROR(CheckTokens(size, path));
      KU_ASSIGN_OR_RETURN(writer, PatchWriter::Create(config_, num_frames, size, &input));
    } else if (frame.width != input.width || frame.height != input.height) {
      return Status(StatusCode::kInput,
                    path + " has frames of different sizes: " + std::to_string(input.width) + "x" +
                        std::to_string(input.height) + " and " + std::to_string(frame.width) + "x" +
                        std::to_string(frame.height),
                    "scale all frames to one size");
    }
    KU_ASSIGN_OR_RETURN(const Picture scaled, Resize(frame, size, options_.scaling));
    return writer->Add(scaled);
  };
  KU_RETURN_IF_ERROR(frames.Read(indices, add));
  writer->Finish();
  return input;
}

}  // namespace kuiper
