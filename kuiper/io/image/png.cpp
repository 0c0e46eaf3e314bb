// Decodes PNG with libpng, as Pillow does: 16-bit channels lose the lower byte, but 16-bit grey
// without alpha is clipped to 255.
#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/image/codecs.h"

namespace kuiper {
namespace {

// Limits of libpng: the bytes of one chunk, also after decompression, and the number of such chunks
// that it keeps. A file of a few KB could demand all of that memory.
constexpr png_alloc_size_t kMaxChunkBytes = 8 << 20;
constexpr png_uint_32 kMaxChunks = 16;

// The library's state. Its errors longjmp back into the member function that called it, so these
// functions hold no objects with destructors.
struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  int num_passes = 1;     // passes over the rows; 7 if interlaced
  std::string_view rest;  // the unread part of the file
  DecodingWatch watch;
  std::jmp_buf jump = {};
  char message[200] = "no memory";

  PngReader() = default;
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }

  // Each returns false after writing the reason to `message`.
  bool ReadHeader(const ImageFile& file);
  // Makes ReadRow return RGBA if has_alpha(), 16-bit grey if gray16(), otherwise RGB.
  bool Start();
  bool ReadRow(uint8_t* row);
  // Reads the chunks after the pixels.
  bool ReadEnd();
  bool gray16() const {
    return png_get_color_type(png, info) == PNG_COLOR_TYPE_GRAY &&
           png_get_bit_depth(png, info) == 16;
  }
  // Also true for a palette with an alpha per colour.
  bool has_alpha() const {
    const int kind = png_get_color_type(png, info);
    return (kind & PNG_COLOR_MASK_ALPHA) != 0 ||
           (kind == PNG_COLOR_TYPE_PALETTE && png_get_valid(png, info, PNG_INFO_tRNS) != 0);
  }
};

[[noreturn]] void Fail(png_structp png, png_const_charp message) {
  auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(reader->message, sizeof reader->message, "%s", message);
  std::longjmp(reader->jump, 1);
}

void Ignore(png_structp, png_const_charp) {}

void Read(png_structp png, png_bytep out, size_t bytes) {
  auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (bytes > reader->rest.size()) png_error(png, "the file ends before the picture does");
  if (!reader->watch.MayContinue()) png_error(png, "nobody waits for it");
  std::memcpy(out, reader->rest.data(), bytes);
  reader->rest.remove_prefix(bytes);
}

bool PngReader::ReadHeader(const ImageFile& file) {
  rest = file.bytes;
  watch = file.watch;
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, Fail, Ignore);
  if (png == nullptr) return false;
  if (setjmp(jump) != 0) return false;
  info = png_create_info_struct(png);
  if (info == nullptr) return false;
  png_set_read_fn(png, this, Read);
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // NewPicture limits their product
  png_set_chunk_malloc_max(png, kMaxChunkBytes);
  png_set_chunk_cache_max(png, kMaxChunks);
  png_read_info(png, info);
  return true;
}

bool PngReader::Start() {
  if (setjmp(jump) != 0) return false;
  const int depth = png_get_bit_depth(png, info);
  const bool is_gray = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) == 0;
  if (!gray16()) {
    if (depth == 16) png_set_strip_16(png);
    if (png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (is_gray && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
    if (is_gray) png_set_gray_to_rgb(png);
    if (!has_alpha()) png_set_strip_alpha(png);
  }
  num_passes = png_set_interlace_handling(png);
  png_start_read_image(png);
  return true;
}

bool PngReader::ReadRow(uint8_t* row) {
  if (setjmp(jump) != 0) return false;
  png_read_row(png, row, nullptr);
  return true;
}

bool PngReader::ReadEnd() {
  if (setjmp(jump) != 0) return false;
  png_read_end(png, info);
  return true;
}

// Converts in place, from right to left: `row` begins with `width` values of 2 bytes.
void Gray16ToRgb(uint8_t* row, size_t width) {
  for (size_t x = width; x-- > 0;) {
    const uint8_t value = row[2 * x] == 0 ? row[2 * x + 1] : 255;
    std::memset(row + 3 * x, value, 3);
  }
}

// Makes the pixels of the file's transparent colour white. Pillow compares the lower byte of that
// colour with 8-bit pixels: in files of 2, 4 and 16 bits it whitens other pixels than intended, or
// none. Returns false if the caller no longer waits.
bool WhitenTransparentColor(const PngReader& reader, Picture* picture) {
  png_bytep alphas = nullptr;
  int num_alphas = 0;
  png_color_16p color = nullptr;
  if (reader.has_alpha() ||
      png_get_tRNS(reader.png, reader.info, &alphas, &num_alphas, &color) == 0) {
    return true;
  }
  uint8_t rgb[3] = {static_cast<uint8_t>(color->red), static_cast<uint8_t>(color->green),
                    static_cast<uint8_t>(color->blue)};
  if (png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_GRAY) {
    const bool is_bit = png_get_bit_depth(reader.png, reader.info) == 1;
    std::memset(rgb, is_bit && color->gray != 0 ? 255 : color->gray, 3);
  }
  for (int y = 0; y < picture->height; ++y) {
    if (!reader.watch.MayContinue()) return false;
    uint8_t* const row = picture->row(y);
    for (uint8_t* pixel = row; pixel < row + picture->row_bytes(); pixel += 3) {
      if (std::memcmp(pixel, rgb, 3) == 0) std::memset(pixel, 255, 3);
    }
  }
  return true;
}

// Decodes ImageMagick's "Raw profile type exif": a line break, a name, a length, then lines of
// hexadecimal digits. Stops at the first invalid character.
std::string HexProfile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  std::string bytes;
  int high = -1;
  for (const char c : text) {
    if (c == '\n') continue;
    const std::string_view digits = "0123456789abcdef";
    const size_t digit = digits.find(c);
    if (digit == std::string_view::npos) break;
    if (high < 0) {
      high = static_cast<int>(digit);
    } else {
      bytes.push_back(static_cast<char>(high * 16 + static_cast<int>(digit)));
      high = -1;
    }
  }
  return bytes;
}

void ReadMetadata(const PngReader& reader, StoredPicture* stored) {
  png_textp texts = nullptr;
  const int num_texts = png_get_text(reader.png, reader.info, &texts, nullptr);
  for (int i = 0; i < num_texts; ++i) {
    const std::string_view key = texts[i].key;
    const bool compressed_utf8 = texts[i].compression >= PNG_ITXT_COMPRESSION_NONE;
    const std::string_view text(texts[i].text,
                                compressed_utf8 ? texts[i].itxt_length : texts[i].text_length);
    if (key == "XML:com.adobe.xmp") stored->xmp = text;
    if (key == "Raw profile type exif" && !text.empty()) stored->exif = HexProfile(text);
  }
  png_bytep exif = nullptr;
  png_uint_32 exif_bytes = 0;
  if (png_get_eXIf_1(reader.png, reader.info, &exif_bytes, &exif) != 0) {
    stored->exif.assign(reinterpret_cast<const char*>(exif), exif_bytes);
  }
}

}  // namespace

// Reads the header, the first chunk, of fixed length (PNG, second edition, 11.2.2). The library
// would read everything before the pixels.
StatusOr<PictureSize> PngSize(const ImageFile& file) {
  constexpr size_t kWidthAt = 16, kHeightAt = 20;
  if (file.bytes.size() < kHeightAt + 4) {
    return file.Undecodable("PNG", "the file ends before the picture does");
  }
  const auto* const bytes = reinterpret_cast<const png_byte*>(file.bytes.data());
  return PictureSize{.height = png_get_uint_32(bytes + kHeightAt),
                     .width = png_get_uint_32(bytes + kWidthAt)};
}

StatusOr<StoredPicture> DecodePng(const ImageFile& file) {
  PngReader reader;
  const auto undecodable = [&] { return file.Stopped("PNG", reader.message); };
  if (!reader.ReadHeader(file)) return undecodable();
  StoredPicture stored;
  KU_ASSIGN_OR_RETURN(stored.picture,
                      file.NewPicture(png_get_image_width(reader.png, reader.info),
                                      png_get_image_height(reader.png, reader.info)));
  Picture& picture = stored.picture;
  const bool gray16 = reader.gray16();
  if (!reader.Start()) return undecodable();
  const bool has_alpha = reader.has_alpha();
  const size_t width = static_cast<size_t>(picture.width),
               height = static_cast<size_t>(picture.height);
  const bool one_pass = reader.num_passes == 1;
  std::vector<uint8_t> rgba;  // one row, or all rows if later passes add to them
  if (has_alpha) {
    KU_ASSIGN_OR_RETURN(rgba, NewBytes(4 * width * (one_pass ? 1 : height), file.name, file.watch));
  }
  for (int pass = 1; pass <= reader.num_passes; ++pass) {
    for (int y = 0; y < picture.height; ++y) {
      uint8_t* row = picture.row(y);
      if (has_alpha) row = &rgba[one_pass ? 0 : 4 * width * static_cast<size_t>(y)];
      if (!reader.ReadRow(row)) return undecodable();
      const bool is_last = pass == reader.num_passes;
      if (has_alpha && is_last) LayOnWhite(row, width, picture.row(y));
      if (!file.watch.MayContinue(is_last ? picture.width : 0)) return DecodingStopped(file.name);
    }
  }
  for (int y = 0; gray16 && y < picture.height && file.watch.MayContinue(); ++y) {
    Gray16ToRgb(picture.row(y), static_cast<size_t>(picture.width));
  }
  if (!WhitenTransparentColor(reader, &picture)) return DecodingStopped(file.name);
  // Ignore errors after the pixels, as Pillow does; only later metadata is lost.
  (void)reader.ReadEnd();
  ReadMetadata(reader, &stored);
  return stored;
}

}  // namespace kuiper
