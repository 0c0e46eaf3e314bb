// The decoders of file formats, one source file each. No type, exception or longjmp of a library
// leaves its file. All decode as Pillow does; transparent pixels are laid on white as transformers'
// convert_to_rgb does.
#pragma once

#include <functional>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

// An image as stored. Its metadata (orientation.h) may ask to turn it.
struct StoredPicture {
  Picture picture;
  std::string exif;  // a TIFF structure, with or without "Exif\0\0" in front; empty if absent
  std::string xmp;   // XML; empty if absent
};

// Return the size as stored, from the file's header; nothing is decoded. kInput if the header is
// damaged.
StatusOr<PictureSize> JpegSize(const ImageFile& file);
StatusOr<PictureSize> PngSize(const ImageFile& file);
StatusOr<PictureSize> GifSize(const ImageFile& file);
StatusOr<PictureSize> WebpSize(const ImageFile& file);

// kInput if the file cannot be decoded or exceeds its limits; kUnavailable if the caller no longer
// waits for the image.
StatusOr<StoredPicture> DecodeJpeg(const ImageFile& file);
StatusOr<StoredPicture> DecodePng(const ImageFile& file);
// Decodes the first frame.
StatusOr<StoredPicture> DecodeGif(const ImageFile& file);
StatusOr<StoredPicture> DecodeWebp(const ImageFile& file);

// Properties of an animation, found without decoding a frame.
struct AnimationFacts {
  int num_frames = 0;
  double seconds = 0;  // sum over all frames
};
StatusOr<AnimationFacts> GifFacts(const ImageFile& file);
StatusOr<AnimationFacts> WebpFacts(const ImageFile& file);

// Takes frame `index` as it is shown; returns false if it wants no more frames.
using FrameSink = std::function<StatusOr<bool>(int index, const Picture& frame)>;
// Pass all frames to `sink` in order. Errors are kInput as above, or those of the sink.
Status ForEachGifFrame(const ImageFile& file, const FrameSink& sink);
Status ForEachWebpFrame(const ImageFile& file, const FrameSink& sink);

// Duration of frames of less than 20 ms or without a duration, as in browsers.
constexpr double kDefaultFrameSeconds = 0.1;
inline double FrameSeconds(int milliseconds) {
  return milliseconds < 20 ? kDefaultFrameSeconds : milliseconds / 1000.0;
}

}  // namespace kuiper
