// Frames of a video, from a folder of pictures or an animation, without decoding more than is asked
// for. Called by ImageProcessor.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/image/decode_image.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

class VideoFrames {
 public:
  // `path` is a folder, all of whose files but hidden ones are pictures, in the order of their
  // names' bytes; or an animated GIF or WebP. kInput when it is neither, or beyond the limits.
  static StatusOr<VideoFrames> Open(const std::string& path, const ImageLimits& limits);

  int num_frames() const { return num_frames_; }
  // Absent for folders.
  std::optional<double> fps() const { return fps_; }

  // Hands the frames of these ascending indices to `sink`, in order. kInput when one cannot be
  // decoded, or what the sink returned.
  using Sink = std::function<Status(const Picture& frame)>;
  Status Read(std::span<const int> indices, const Sink& sink) const;

 private:
  VideoFrames(std::string path, const ImageLimits& limits)
      : path_(std::move(path)), limits_(limits) {}
  Status ListFolder();
  Status OpenAnimation();
  Status ReadFolder(std::span<const int> indices, const Sink& sink) const;
  Status ReadAnimation(std::span<const int> indices, const Sink& sink) const;
  Status CheckNumFrames() const;

  std::string path_;
  ImageLimits limits_;
  int num_frames_ = 0;
  std::optional<double> fps_;
  std::vector<std::string> files_;  // of a folder: paths in their order
  std::string bytes_;               // of an animation: the file
  ImageFormat format_ = ImageFormat::kGif;
};

}  // namespace kuiper
