#include "kuiper/io/image/video_frames.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "kuiper/io/image/codecs.h"

namespace kuiper {
namespace {

Status TooManyPixels(const std::string& name, int64_t limit) {
  return Status(StatusCode::kInput,
                name + " has frames of more than " + std::to_string(limit) + " pixels together",
                "shorten the video or scale it down");
}

}  // namespace

StatusOr<VideoFrames> VideoFrames::Open(const std::string& path, const ImageLimits& limits) {
  VideoFrames frames(path, limits);
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  KU_RETURN_IF_ERROR(is_folder ? frames.ListFolder() : frames.OpenAnimation());
  KU_RETURN_IF_ERROR(frames.CheckNumFrames());
  return frames;
}

Status VideoFrames::CheckNumFrames() const {
  if (num_frames_ == 0) {
    return Status(StatusCode::kInput, path_ + " holds no frames", "put the video's frames there");
  }
  if (num_frames_ <= limits_.max_frames) return OkStatus();
  return Status(StatusCode::kInput,
                path_ + " has more than " + std::to_string(limits_.max_frames) + " frames",
                "shorten the video");
}

Status VideoFrames::ListFolder() {
  std::error_code error;
  std::filesystem::directory_iterator entry(path_, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code unknown;
    if (name.starts_with('.') || entry->is_directory(unknown)) continue;
    files_.push_back(entry->path().string());
    if (files_.size() > static_cast<size_t>(limits_.max_frames)) break;
  }
  if (error) {
    return Status(StatusCode::kInput, "cannot read folder " + path_ + ": " + error.message());
  }
  std::ranges::sort(files_);
  num_frames_ = static_cast<int>(files_.size());
  return OkStatus();
}

Status VideoFrames::OpenAnimation() {
  KU_ASSIGN_OR_RETURN(bytes_, ReadImageFile(path_, limits_, "video"));
  const ImageFile file{.bytes = bytes_, .name = path_, .limits = limits_};
  KU_ASSIGN_OR_RETURN(format_, FormatOf(file));
  if (format_ != ImageFormat::kGif && format_ != ImageFormat::kWebp) {
    return Status(StatusCode::kInput, path_ + " is a picture, not a video",
                  "give a folder of frames, or an animated GIF or WebP");
  }
  KU_ASSIGN_OR_RETURN(const AnimationFacts facts,
                      format_ == ImageFormat::kGif ? GifFacts(file) : WebpFacts(file));
  num_frames_ = facts.num_frames;
  if (facts.seconds > 0) fps_ = facts.num_frames / facts.seconds;
  return OkStatus();
}

Status VideoFrames::Read(std::span<const int> indices, const Sink& sink) const {
  return files_.empty() ? ReadAnimation(indices, sink) : ReadFolder(indices, sink);
}

Status VideoFrames::ReadFolder(std::span<const int> indices, const Sink& sink) const {
  int64_t num_pixels = 0;
  for (const int index : indices) {
    const std::string& path = files_[static_cast<size_t>(index)];
    KU_ASSIGN_OR_RETURN(const std::string bytes, ReadImageFile(path, limits_));
    KU_ASSIGN_OR_RETURN(const Picture picture,
                        DecodeImage({.bytes = bytes, .name = path, .limits = limits_}));
    num_pixels += int64_t{picture.width} * picture.height;
    if (num_pixels > limits_.max_video_pixels)
      return TooManyPixels(path_, limits_.max_video_pixels);
    KU_RETURN_IF_ERROR(sink(picture));
  }
  return OkStatus();
}

Status VideoFrames::ReadAnimation(std::span<const int> indices, const Sink& sink) const {
  const ImageFile file{.bytes = bytes_, .name = path_, .limits = limits_};
  size_t taken = 0;
  int64_t num_pixels = 0;
  const auto take = [&](int index, const Picture& frame) -> StatusOr<bool> {
    num_pixels += int64_t{frame.width} * frame.height;
    if (num_pixels > limits_.max_video_pixels)
      return TooManyPixels(path_, limits_.max_video_pixels);
    if (index == indices[taken]) {
      KU_RETURN_IF_ERROR(sink(frame));
      ++taken;
    }
    return taken < indices.size();
  };
  KU_RETURN_IF_ERROR(format_ == ImageFormat::kGif ? ForEachGifFrame(file, take)
                                                  : ForEachWebpFrame(file, take));
  if (taken == indices.size()) return OkStatus();
  return Status(StatusCode::kInput, path_ + " ends before its last frame", "copy the file again");
}

}  // namespace kuiper
