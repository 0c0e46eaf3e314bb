// The decoders of file formats, one source file each. Each hides its library: no type, exception or
// longjmp of it leaves the file. All read as Pillow does; what is transparent is
// laid on white as transformers' convert_to_rgb does.
#pragma once

#include <functional>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/io/image/picture.h"

namespace kuiper {

// A picture as stored. Which way up it is meant to be stands in its metadata (orientation.h).
struct StoredPicture {
  Picture picture;
  std::string exif;  // a TIFF structure, with or without "Exif\0\0" in front; empty when absent
  std::string xmp;   // XML; empty when absent
};

// The size as stored, from the file's header: nothing is decoded. kInput when the header is
// damaged.
StatusOr<PictureSize> JpegSize(const ImageFile& file);
StatusOr<PictureSize> PngSize(const ImageFile& file);
StatusOr<PictureSize> BmpSize(const ImageFile& file);
StatusOr<PictureSize> GifSize(const ImageFile& file);
StatusOr<PictureSize> WebpSize(const ImageFile& file);

// kInput when the file cannot be decoded or asks for more than its limits; kUnavailable when nobody
// waits for the picture any more.
StatusOr<StoredPicture> DecodeJpeg(const ImageFile& file);
StatusOr<StoredPicture> DecodePng(const ImageFile& file);
StatusOr<StoredPicture> DecodeBmp(const ImageFile& file);
// The first frame.
StatusOr<StoredPicture> DecodeGif(const ImageFile& file);
StatusOr<StoredPicture> DecodeWebp(const ImageFile& file);

// What an animation holds, found without decoding a frame.
struct AnimationFacts {
  int num_frames = 0;
  double seconds = 0;  // all frames together
};
StatusOr<AnimationFacts> GifFacts(const ImageFile& file);
StatusOr<AnimationFacts> WebpFacts(const ImageFile& file);

// Takes frame `index` as it is shown; false: no more are wanted.
using FrameSink = std::function<StatusOr<bool>(int index, const Picture& frame)>;
// Hands all frames in their order to `sink`. kInput as above, or what the sink returned.
Status PlayGif(const ImageFile& file, const FrameSink& sink);
Status PlayWebp(const ImageFile& file, const FrameSink& sink);

// Browsers show a frame whose file says less than 20 ms for this long.
constexpr double kUnsaidFrameSeconds = 0.1;
inline double FrameSeconds(int milliseconds) {
  return milliseconds < 20 ? kUnsaidFrameSeconds : milliseconds / 1000.0;
}

}  // namespace kuiper
