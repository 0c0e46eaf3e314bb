// Reads frames of a video, from a folder of images or an animation, decoding only the frames that
// are asked for. Called by ImageProcessor.
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
  // `path` is an animated GIF or WebP, or a folder. In a folder all files that are not hidden must
  // be images; they are ordered by the bytes of their names. kInput if it is neither, or exceeds
  // the limits.
  static StatusOr<VideoFrames> Open(const std::string& path, const ImageLimits& limits);

  int num_frames() const { return num_frames_; }
  // Absent for folders.
  std::optional<double> fps() const { return fps_; }

  // Passes the frames with these ascending indices to `sink`, in order. Errors are kInput if a
  // frame cannot be decoded, or those of the sink.
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
  std::vector<std::string> files_;  // folder: the paths, in order
  std::string bytes_;               // animation: the file
  ImageFormat format_ = ImageFormat::kGif;
};

}  // namespace kuiper
