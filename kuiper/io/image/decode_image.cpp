#include "kuiper/io/image/decode_image.h"

#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/io/image/codecs.h"
#include "kuiper/io/image/orientation.h"

namespace kuiper {
namespace {

StatusOr<StoredPicture> DecodeStored(const ImageFile& file, ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return DecodeJpeg(file);
    case ImageFormat::kPng:
      return DecodePng(file);
    case ImageFormat::kGif:
      return DecodeGif(file);
    case ImageFormat::kWebp:
      return DecodeWebp(file);
  }
  KU_CHECK(false, "unknown image format");
}

StatusOr<PictureSize> StoredSize(const ImageFile& file, ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return JpegSize(file);
    case ImageFormat::kPng:
      return PngSize(file);
    case ImageFormat::kGif:
      return GifSize(file);
    case ImageFormat::kWebp:
      return WebpSize(file);
  }
  KU_CHECK(false, "unknown image format");
}

}  // namespace

StatusOr<ImageFormat> FormatOf(const ImageFile& file) {
  const std::string_view bytes = file.bytes;
  if (bytes.starts_with("\xFF\xD8\xFF")) return ImageFormat::kJpeg;
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return ImageFormat::kPng;
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return ImageFormat::kGif;
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return ImageFormat::kWebp;
  return Status(StatusCode::kInput,
                file.name + " is not a decodable image (PNG, JPEG, GIF, WebP supported)",
                "convert it to one of these formats");
}

StatusOr<PictureSize> SizeOfImage(const ImageFile& file) {
  KU_ASSIGN_OR_RETURN(const ImageFormat format, FormatOf(file));
  KU_ASSIGN_OR_RETURN(const PictureSize size, StoredSize(file, format));
  KU_RETURN_IF_ERROR(file.CheckSize(size.width, size.height));
  return size;
}

StatusOr<Picture> DecodeImage(const ImageFile& file) {
  KU_ASSIGN_OR_RETURN(const ImageFormat format, FormatOf(file));
  KU_ASSIGN_OR_RETURN(StoredPicture stored, DecodeStored(file, format));
  return Oriented(std::move(stored.picture), OrientationOf(stored.exif, stored.xmp), file.watch);
}

StatusOr<std::string> ReadImageFile(const std::string& path, const ImageLimits& limits,
                                    const std::string& kind) {
  return ReadTextFile(path, limits.max_file_bytes, StatusCode::kInput, kind + " ");
}

}  // namespace kuiper
