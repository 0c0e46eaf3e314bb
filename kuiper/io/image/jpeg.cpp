// Decodes JPEG with libjpeg-turbo, with the settings of Pillow: the accurate integer DCT, smooth
// upsampling, CMYK inverted as Adobe stores it.
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
// clang-format off: both headers need <cstdio>, which they do not include.
#include <jerror.h>
#include <jpeglib.h>
// clang-format on

#include "kuiper/io/image/codecs.h"

namespace kuiper {
namespace {

// A progressive file of a few bytes per scan can demand any number of passes over the image.
constexpr int kMaxScans = 500;

// The library's state. Its errors longjmp back into the member function that called it, so these
// functions hold no objects with destructors.
struct JpegReader {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  DecodingWatch watch;
  std::jmp_buf jump = {};
  char message[JMSG_LENGTH_MAX] = "";

  JpegReader() = default;
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info); }

  // Each returns false after writing the reason to `message`.
  bool ReadHeader(std::string_view bytes);
  bool Start();
  bool ReadRow(uint8_t* row);
};

JpegReader* ReaderOf(j_common_ptr info) {
  return static_cast<JpegReader*>(info->client_data);
}

[[noreturn]] void Fail(j_common_ptr info) {
  info->err->format_message(info, ReaderOf(info)->message);
  std::longjmp(ReaderOf(info)->jump, 1);
}

// Level -1 is a warning. As in Pillow, corrupt data gives wrong pixels, but a file that ends before
// the image does is an error.
void OnMessage(j_common_ptr info, int level) {
  if (level == -1 && info->err->msg_code == JWRN_JPEG_EOF) Fail(info);
}

void OnProgress(j_common_ptr info) {
  JpegReader* reader = ReaderOf(info);
  const bool too_many = reader->info.input_scan_number > kMaxScans;
  if (!too_many && reader->watch.MayContinue()) return;
  std::snprintf(reader->message, sizeof reader->message, "more than %d scans", kMaxScans);
  std::longjmp(reader->jump, 1);
}

bool JpegReader::ReadHeader(std::string_view bytes) {
  info.err = jpeg_std_error(&errors);
  errors.error_exit = Fail;
  errors.emit_message = OnMessage;
  info.client_data = this;
  if (setjmp(jump) != 0) return false;
  jpeg_create_decompress(&info);
  progress.progress_monitor = OnProgress;
  info.progress = &progress;
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_save_markers(&info, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&info, TRUE);
  if (info.num_components == 4) {
    info.out_color_space = JCS_CMYK;
  } else if (info.num_components == 1 || info.num_components == 3) {
    info.out_color_space = JCS_RGB;
  } else {
    std::snprintf(message, sizeof message, "%d colour channels", info.num_components);
    return false;
  }
  return true;
}

bool JpegReader::Start() {
  if (setjmp(jump) != 0) return false;
  jpeg_start_decompress(&info);
  return true;
}

bool JpegReader::ReadRow(uint8_t* row) {
  if (setjmp(jump) != 0) return false;
  jpeg_read_scanlines(&info, &row, 1);
  return true;
}

// Pillow's conversion of inverted CMYK: (255 - K) * (255 - C) / 255, rounded.
void CmykToRgb(const uint8_t* cmyk, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int light = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * light + 128;
      rgb[c] = static_cast<uint8_t>(light - (((product >> 8) + product) >> 8));
    }
  }
}

std::string AfterPrefix(const jpeg_marker_struct& marker, std::string_view prefix) {
  const std::string_view data(reinterpret_cast<const char*>(marker.data), marker.data_length);
  return data.starts_with(prefix) ? std::string(data.substr(prefix.size())) : "";
}

void ReadMetadata(const jpeg_decompress_struct& info, StoredPicture* stored) {
  using namespace std::string_view_literals;
  for (const jpeg_marker_struct* marker = info.marker_list; marker != nullptr;
       marker = marker->next) {
    stored->exif += AfterPrefix(*marker, "Exif\0\0"sv);
    std::string xmp = AfterPrefix(*marker, "http://ns.adobe.com/xap/1.0/\0"sv);
    if (!xmp.empty()) stored->xmp = std::move(xmp);
  }
}

}  // namespace

StatusOr<PictureSize> JpegSize(const ImageFile& file) {
  JpegReader reader;
  if (!reader.ReadHeader(file.bytes)) return file.Undecodable("JPEG", reader.message);
  return PictureSize{.height = reader.info.image_height, .width = reader.info.image_width};
}

StatusOr<StoredPicture> DecodeJpeg(const ImageFile& file) {
  JpegReader reader;
  reader.watch = file.watch;
  const auto undecodable = [&] { return file.Stopped("JPEG", reader.message); };
  if (!reader.ReadHeader(file.bytes)) return undecodable();
  StoredPicture stored;
  KU_ASSIGN_OR_RETURN(stored.picture,
                      file.NewPicture(reader.info.image_width, reader.info.image_height));
  ReadMetadata(reader.info, &stored);
  if (!reader.Start()) return undecodable();
  Picture& picture = stored.picture;
  const bool cmyk = reader.info.out_color_space == JCS_CMYK;
  std::vector<uint8_t> cmyk_row(cmyk ? static_cast<size_t>(picture.width) * 4 : 0);
  for (int y = 0; y < picture.height; ++y) {
    if (!reader.ReadRow(cmyk ? cmyk_row.data() : picture.row(y))) return undecodable();
    if (cmyk) CmykToRgb(cmyk_row.data(), picture.width, picture.row(y));
    if (!file.watch.MayContinue(picture.width)) return DecodingStopped(file.name);
  }
  return stored;
}

}  // namespace kuiper
