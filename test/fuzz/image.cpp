// Fuzzes every decoder of images and animations, orientation and data: URLs, and the processing of
// images that decode.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/io/image/codecs.h"
#include "kuiper/io/image/data_url.h"
#include "kuiper/io/image/decode_image.h"
#include "kuiper/io/image/image_processor.h"
#include "kuiper/io/image/orientation.h"

namespace kuiper {
namespace {

constexpr int64_t kMaxPixels = 1 << 16;

void CheckPicture(const Picture& picture) {
  KU_CHECK(picture.width > 0 && picture.height > 0, "an empty picture");
  KU_CHECK(int64_t{picture.width} * picture.height <= kMaxPixels, "more pixels than allowed");
  KU_CHECK(picture.rgb.size() == picture.row_bytes() * static_cast<size_t>(picture.height),
           "pixels of another size");
}

void Play(const ImageFile& file, ImageFormat format) {
  int left = 20;  // frames
  const auto sink = [&](int, const Picture& frame) -> StatusOr<bool> {
    CheckPicture(frame);
    return --left > 0;
  };
  if (format == ImageFormat::kGif) {
    (void)GifFacts(file).ok();
    (void)ForEachGifFrame(file, sink).ok();
  } else if (format == ImageFormat::kWebp) {
    (void)WebpFacts(file).ok();
    (void)ForEachWebpFrame(file, sink).ok();
  }
}

void Process(const Picture& picture) {
  ImageOptions options;
  options.min_pixels = 1024;
  options.max_pixels = 4096;
  const auto processor = ImageProcessor::Create({}, options);
  const auto input = processor->FromPicture(picture, "fuzz");
  if (!input.ok()) return;
  KU_CHECK(input->patches.size() == static_cast<size_t>(input->grid.num_patches()) * 1536,
           "patches of another size");
}

}  // namespace
}  // namespace kuiper

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kuiper;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ImageFile file{.bytes = bytes, .name = "fuzz", .limits = {.max_pixels = kMaxPixels}};
  (void)OrientationOf(bytes, bytes);
  (void)DecodeImageUrl(bytes, size_t{1} << 20, "fuzz").ok();
  const auto format = FormatOf(file);
  if (!format.ok()) return 0;
  Play(file, *format);
  const auto picture = DecodeImage(file);
  if (!picture.ok()) return 0;
  CheckPicture(*picture);
  const auto stored = SizeOfImage(file);
  KU_CHECK(
      stored.ok() && stored->width * stored->height == int64_t{picture->width} * picture->height,
      "the header says another size");
  Process(*picture);
  return 0;
}
