// Windows and OS/2 bitmaps: no library of the distributions reads them alone. Layout as in
// Microsoft's documentation of BITMAPINFOHEADER; what is left open there is read as Pillow does.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/image/codecs.h"

namespace kuiper {
namespace {

constexpr size_t kFileHeaderBytes = 14;
constexpr std::array<uint32_t, 7> kHeaderBytes = {12, 40, 52, 56, 64, 108, 124};
enum Compression : uint32_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

struct BmpHeader {
  int64_t width = 0, height = 0;
  bool top_down = false;
  int bits = 0;  // per pixel
  uint32_t compression = kPlain;
  uint32_t masks[4] = {};  // red, green, blue, alpha; of pixels of 16 bits and more
  size_t pixels_at = 0;    // byte in the file
  uint8_t palette[256][3] = {};

  bool rle() const { return compression == kRle8 || compression == kRle4; }
  size_t stored_row_bytes() const {
    return (static_cast<size_t>(width) * static_cast<size_t>(bits) + 31) / 32 * 4;
  }
};

// `num_bytes` (at most 4) of the file, the lowest first. The caller knows that they are there.
uint32_t Little(std::string_view bytes, size_t at, size_t num_bytes) {
  uint32_t value = 0;
  for (size_t i = num_bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// Red, green, blue and alpha in the pixels of 16, 24 and 32 bits; a header may say otherwise. False
// when the file ends in them.
bool ReadMasks(std::string_view bytes, size_t* at, BmpHeader* header) {
  if (header->compression == kBitFields) {
    if (bytes.size() < kFileHeaderBytes + 40 + 12) return false;
    for (size_t c = 0; c < 3; ++c) {
      header->masks[c] = Little(bytes, kFileHeaderBytes + 40 + 4 * c, 4);
    }
    if (header->bits == 32 && *at >= kFileHeaderBytes + 56) {
      header->masks[3] = Little(bytes, kFileHeaderBytes + 52, 4);
    }
    *at = std::max(*at, kFileHeaderBytes + 40 + 12);
  }
  if ((header->masks[0] | header->masks[1] | header->masks[2]) != 0) return true;
  const uint32_t low = header->bits == 16 ? 0x1F : 0xFF;
  const int step = header->bits == 16 ? 5 : 8;
  for (int c = 0; c < 3; ++c) header->masks[c] = low << (step * (2 - c));
  // Pillow takes bit fields without any bit for blue, green, red and alpha.
  if (header->compression == kBitFields && header->bits == 32) header->masks[3] = 0xFF000000;
  return true;
}

bool ReadPalette(std::string_view bytes, size_t at, size_t num_colors, size_t entry_bytes,
                 BmpHeader* header) {
  if (num_colors > (bytes.size() - at) / entry_bytes) return false;
  for (size_t i = 0; i < std::min<size_t>(num_colors, 256); ++i) {
    for (size_t c = 0; c < 3; ++c) {
      header->palette[i][c] = static_cast<uint8_t>(bytes[at + entry_bytes * i + 2 - c]);
    }
  }
  return true;
}

// "" or what is wrong.
std::string_view CheckHeader(const BmpHeader& header) {
  const int bits = header.bits;
  if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32) {
    return "pixels are neither of 1, 4, 8, 16, 24 nor 32 bits";
  }
  switch (header.compression) {
    case kPlain:
      return "";
    case kRle8:
      return bits == 8 ? "" : "RLE8 is for pixels of 8 bits";
    case kRle4:
      return bits == 4 ? "" : "RLE4 is for pixels of 4 bits";
    case kBitFields:
      return bits >= 16 ? "" : "bit fields are for pixels of 16 bits and more";
    default:
      return "this compression is not supported";
  }
}

// "" or what is wrong.
std::string_view ReadHeader(std::string_view bytes, BmpHeader* header) {
  constexpr std::string_view kEnds = "the file ends in its header";
  if (bytes.size() < kFileHeaderBytes + 12) return kEnds;
  const uint32_t header_bytes = Little(bytes, kFileHeaderBytes, 4);
  if (std::ranges::find(kHeaderBytes, header_bytes) == kHeaderBytes.end()) {
    return "its header has an unknown size";
  }
  if (bytes.size() < kFileHeaderBytes + header_bytes) return kEnds;
  header->pixels_at = Little(bytes, 10, 4);
  uint32_t num_colors = 0;
  const bool os2 = header_bytes == 12;
  if (os2) {
    header->width = Little(bytes, 18, 2);
    header->height = Little(bytes, 20, 2);
    header->bits = static_cast<int>(Little(bytes, 24, 2));
  } else {
    header->width = static_cast<int32_t>(Little(bytes, 18, 4));
    const int64_t height = static_cast<int32_t>(Little(bytes, 22, 4));
    header->top_down = height < 0;
    header->height = std::abs(height);
    header->bits = static_cast<int>(Little(bytes, 28, 2));
    header->compression = Little(bytes, 30, 4);
    num_colors = Little(bytes, 46, 4);
  }
  const std::string_view wrong = CheckHeader(*header);
  if (!wrong.empty()) return wrong;
  size_t at = kFileHeaderBytes + header_bytes;
  if (header->bits > 8) {
    if (!ReadMasks(bytes, &at, header)) return kEnds;
  } else {
    if (num_colors == 0) num_colors = 1u << header->bits;
    if (!ReadPalette(bytes, at, num_colors, os2 ? 3 : 4, header))
      return "the file ends in its palette";
    // Some writers do not count the palette in.
    const size_t palette_bytes = size_t{num_colors} * (os2 ? 3 : 4);
    if (header->pixels_at == at) header->pixels_at += palette_bytes;
    at += palette_bytes;
  }
  if (header->pixels_at == 0) header->pixels_at = at;
  return "";
}

// The bits of `mask`, as 0 to 255.
uint8_t Channel(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  return static_cast<uint8_t>(uint64_t{(pixel & mask) >> shift} * 255 / (mask >> shift));
}

void ReadRow(const BmpHeader& header, std::string_view stored, int width, uint8_t* rgb) {
  const size_t bits = static_cast<size_t>(header.bits);
  for (size_t x = 0; x < static_cast<size_t>(width); ++x, rgb += 3) {
    if (bits > 8) {
      const uint32_t pixel = Little(stored, x * bits / 8, bits / 8);
      uint8_t rgba[4];
      for (int c = 0; c < 4; ++c) rgba[c] = Channel(pixel, header.masks[c]);
      if (header.masks[3] == 0) rgba[3] = 255;
      LayOnWhite(rgba, 1, rgb);
    } else {
      const uint32_t byte = Little(stored, x * bits / 8, 1);
      const uint32_t index = byte >> (8 - bits - x * bits % 8) & ((1u << bits) - 1);
      std::copy_n(header.palette[index], 3, rgb);
    }
  }
}

// Reads run-length codes into indices of the palette, the bottom row first. What no code sets is 0.
class RleReader {
 public:
  RleReader(const BmpHeader& header, const ImageFile& file, std::vector<uint8_t>* indices)
      : bytes_(file.bytes),
        watch_(file.watch),
        at_(header.pixels_at),
        bits_(header.bits),
        width_(static_cast<size_t>(header.width)),
        out_(*indices) {}

  void Read() {
    constexpr size_t kCodesBetweenLooks = 4096;
    for (size_t i = 0; pos_ < out_.size() && at_ + 2 <= bytes_.size(); ++i) {
      if (i % kCodesBetweenLooks == 0 && !watch_.MayContinue()) return;
      const size_t count = Next();
      const uint8_t value = Next();
      if (count > 0) {
        Run(std::min(count, width_ - std::min(x_, width_)), value);
      } else if (value == kEndOfLine) {
        pos_ = (pos_ + width_ - 1) / width_ * width_;
        x_ = 0;
      } else if (value == kEndOfBitmap) {
        return;
      } else if (value == kDelta) {
        if (at_ + 2 > bytes_.size()) return;
        const size_t right = Next();
        pos_ += right + Next() * width_;
        x_ = pos_ % width_;
      } else {
        Absolute(value);
      }
    }
  }

 private:
  enum Escape : uint8_t { kEndOfLine = 0, kEndOfBitmap = 1, kDelta = 2 };

  uint8_t Next() { return static_cast<uint8_t>(bytes_[at_++]); }
  void Put(uint8_t index) {
    if (pos_ < out_.size()) out_[pos_++] = index;
    ++x_;
  }
  // Pixel `i` of those a byte holds, or that repeat it.
  uint8_t Part(uint8_t byte, size_t i) const {
    if (bits_ == 8) return byte;
    return i % 2 == 0 ? byte >> 4 : byte & 0x0F;
  }
  void Run(size_t count, uint8_t value) {
    for (size_t i = 0; i < count; ++i) Put(Part(value, i));
  }
  // Pixels one by one; an even number of bytes of the file.
  void Absolute(size_t count) {
    const size_t per_byte = static_cast<size_t>(8 / bits_);
    uint8_t byte = 0;
    for (size_t i = 0; i < count; ++i) {
      if (i % per_byte == 0) {
        if (at_ == bytes_.size()) return;
        byte = Next();
      }
      Put(Part(byte, i));
    }
    at_ += at_ % 2;
  }

  std::string_view bytes_;
  DecodingWatch watch_;
  size_t at_;
  int bits_;
  size_t width_;
  std::vector<uint8_t>& out_;
  size_t pos_ = 0, x_ = 0;  // x_ runs past the width where a line does
};

Status ReadRle(const ImageFile& file, const BmpHeader& header, Picture* picture) {
  const size_t width = static_cast<size_t>(picture->width);
  KU_ASSIGN_OR_RETURN(
      std::vector<uint8_t> indices,
      NewBytes(width * static_cast<size_t>(picture->height), file.name, file.watch));
  RleReader(header, file, &indices).Read();
  const uint8_t* index = indices.data();
  for (int stored_y = 0; stored_y < picture->height; ++stored_y) {
    if (!file.watch.MayContinue(picture->width)) return DecodingStopped(file.name);
    uint8_t* rgb = picture->row(header.top_down ? stored_y : picture->height - 1 - stored_y);
    for (size_t x = 0; x < width; ++x, rgb += 3) std::copy_n(header.palette[*index++], 3, rgb);
  }
  return OkStatus();
}

}  // namespace

StatusOr<PictureSize> BmpSize(const ImageFile& file) {
  BmpHeader header;
  const std::string_view wrong = ReadHeader(file.bytes, &header);
  if (!wrong.empty()) return file.Undecodable("BMP", wrong);
  return PictureSize{.height = header.height, .width = header.width};
}

StatusOr<StoredPicture> DecodeBmp(const ImageFile& file) {
  BmpHeader header;
  const std::string_view wrong = ReadHeader(file.bytes, &header);
  if (!wrong.empty()) return file.Undecodable("BMP", wrong);
  StoredPicture stored;
  Picture& picture = stored.picture;
  KU_ASSIGN_OR_RETURN(picture, file.NewPicture(header.width, header.height));
  if (header.rle()) {
    KU_RETURN_IF_ERROR(ReadRle(file, header, &picture));
    return stored;
  }
  const size_t row_bytes = header.stored_row_bytes();
  const size_t rest = file.bytes.size() - std::min(file.bytes.size(), header.pixels_at);
  if (static_cast<size_t>(picture.height) > rest / row_bytes) {
    return file.Undecodable("BMP", "the file ends before the picture does");
  }
  for (int y = 0; y < picture.height; ++y) {
    const int stored_y = header.top_down ? y : picture.height - 1 - y;
    const size_t at = header.pixels_at + static_cast<size_t>(stored_y) * row_bytes;
    ReadRow(header, file.bytes.substr(at, row_bytes), picture.width, picture.row(y));
    if (!file.watch.MayContinue(picture.width)) return DecodingStopped(file.name);
  }
  return stored;
}

}  // namespace kuiper
