#include "kuiper/io/image/orientation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kuiper {
namespace {

// A TIFF structure, as in EXIF (TIFF 6.0, section 2).
class Tiff {
 public:
  explicit Tiff(std::string_view bytes) : bytes_(bytes) {}

  // Returns the value of the Orientation tag in the first directory.
  std::optional<int> Orientation() {
    constexpr uint32_t kOrientation = 0x0112, kShort = 3, kLong = 4;
    big_endian_ = bytes_.starts_with("MM");
    if (!big_endian_ && !bytes_.starts_with("II")) return std::nullopt;
    if (At(2, 2) != 42) return std::nullopt;
    const size_t directory = At(4, 4);
    const size_t num_entries = At(directory, 2);
    for (size_t i = 0; i < num_entries; ++i) {
      const size_t entry = directory + 2 + 12 * i;
      if (entry + 12 > bytes_.size()) break;
      if (At(entry, 2) != kOrientation || At(entry + 4, 4) != 1) continue;
      const uint32_t type = At(entry + 2, 2);
      if (type == kShort) return static_cast<int>(At(entry + 8, 2));
      if (type == kLong && At(entry + 8, 4) <= 8) return static_cast<int>(At(entry + 8, 4));
    }
    return std::nullopt;
  }

 private:
  // Returns the num_bytes-byte number at `at`; 0 past the end of the block.
  uint32_t At(size_t at, size_t num_bytes) const {
    if (at > bytes_.size() || num_bytes > bytes_.size() - at) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < num_bytes; ++i) {
      const size_t byte = big_endian_ ? i : num_bytes - 1 - i;
      value = value << 8 | static_cast<uint8_t>(bytes_[at + byte]);
    }
    return value;
  }

  std::string_view bytes_;
  bool big_endian_ = false;
};

// Implements Pillow's pattern tiff:Orientation(="|>)([0-9]).
std::optional<int> XmpOrientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    std::string_view value = xmp.substr(at + kName.size());
    if (value.starts_with("=\"")) {
      value.remove_prefix(2);
    } else if (value.starts_with('>')) {
      value.remove_prefix(1);
    } else {
      continue;
    }
    if (!value.empty() && value[0] >= '0' && value[0] <= '9') return value[0] - '0';
  }
  return std::nullopt;
}

}  // namespace

int OrientationOf(std::string_view exif, std::string_view xmp) {
  using namespace std::string_view_literals;
  while (exif.starts_with("Exif\0\0"sv)) exif.remove_prefix(6);
  std::optional<int> orientation = Tiff(exif).Orientation();
  if (!orientation.has_value()) orientation = XmpOrientation(xmp);
  return orientation.has_value() && *orientation >= 1 && *orientation <= 8 ? *orientation : 1;
}

StatusOr<Picture> Oriented(Picture picture, int orientation, const DecodingWatch& watch) {
  constexpr char kTurned[] = "the turned picture";
  if (orientation == 1) return picture;
  // Orientations 5 to 8 exchange rows and columns. The flags say where row y, column x of the
  // result come from.
  const bool transposed = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Picture turned{.width = picture.width, .height = picture.height, .rgb = {}};
  if (transposed) std::swap(turned.width, turned.height);
  KU_ASSIGN_OR_RETURN(turned.rgb, NewBytes(picture.rgb.size(), kTurned, watch));
  for (int y = 0; y < turned.height; ++y) {
    if (!watch.MayContinue()) return DecodingStopped(kTurned);
    uint8_t* out = turned.row(y);
    for (int x = 0; x < turned.width; ++x, out += 3) {
      int from_x = transposed ? y : x;
      int from_y = transposed ? x : y;
      if (from_right) from_x = picture.width - 1 - from_x;
      if (from_below) from_y = picture.height - 1 - from_y;
      std::copy_n(picture.row(from_y) + static_cast<ptrdiff_t>(from_x) * 3, 3, out);
    }
  }
  return turned;
}

}  // namespace kuiper
