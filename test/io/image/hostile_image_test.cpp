// Files that are inconsistent, cut off or damaged: each must give an error or an image within the
// limits.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "kuiper/io/image/codecs.h"
#include "kuiper/io/image/decode_image.h"
#include "kuiper/io/image/image_processor.h"
#include "kuiper/io/image/orientation.h"
#include "test/io/image/image_test_util.h"

namespace kuiper {
namespace {

using std::string_literals::operator""s;

std::string File(const std::string& name) {
  return test::FileBytes(test::ImagePath(name));
}

// Returns `bytes` with `patch` written at `at`.
std::string With(std::string bytes, size_t at, const std::string& patch) {
  return bytes.replace(at, patch.size(), patch);
}

// Returns the checksum that a changed chunk of a PNG needs (PNG, second edition, annex D).
uint32_t Crc(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

std::string PngOfSize(const std::string& width, const std::string& height) {
  std::string png = With(File("rgb-8.png"), 16, width + height);
  const uint32_t crc = Crc(std::string_view(png).substr(12, 17));
  for (size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  return png;
}

TEST(HostileImageTest, EachIsOneClearError) {
  const std::string jpeg = File("00-rgb.jpg"), gif = File("offset.gif");
  const size_t sof =
      jpeg.find("\xFF\xC0") != std::string::npos ? jpeg.find("\xFF\xC0") : jpeg.find("\xFF\xC2");
  const struct {
    const char* what;
    std::string bytes;
    const char* says;
  } cases[] = {
      {"nothing", "", "cat.img is not a decodable image (PNG, JPEG, GIF, WebP supported)"},
      {"BMP", "BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x18\0"s,
       "cat.img is not a decodable image (PNG, JPEG, GIF, WebP supported)"},
      {"text", "hello", "is not a decodable image (PNG"},
      {"JPEG, magic only", "\xFF\xD8\xFF", "is not a decodable image: JPEG, "},
      {"JPEG bomb", With(jpeg, sof + 5, "\xFF\xDC\xFF\xDC"s), "more than the limit"},
      {"JPEG without height", With(jpeg, sof + 5, "\0\0"s), "JPEG, "},
      {"JPEG of 2 colours", With(jpeg, sof + 2, "\0\x0E\x08\0\x08\0\x08\x02"s), "JPEG, "},
      {"JPEG of 12 bits", With(jpeg, sof + 4, "\x0C"s), "JPEG, "},
      {"JPEG, half", jpeg.substr(0, jpeg.size() / 2), "JPEG, "},
      {"PNG, magic only", "\x89PNG\r\n\x1A\n", "PNG, the file ends before the picture does"},
      {"PNG bomb", PngOfSize("\x7F\xFF\xFF\xFF", "\x7F\xFF\xFF\xFF"), "more than the limit"},
      {"PNG without width", PngOfSize("\0\0\0\0"s, "\0\0\0\x09"s), "PNG, "},
      {"PNG, damaged header", With(File("rgb-8.png"), 20, "\x55"), "PNG, "},
      {"PNG, half", File("rgb-16.png").substr(0, 100), "PNG, the file ends"},
      {"GIF, magic only", "GIF89a", "GIF, "},
      {"GIF without frames", gif.substr(0, 13 + 24) + ";", "GIF, it holds no picture"},
      {"GIF bomb", With(gif, 6, "\xFF\xFF\xFF\xFF"), "more than the limit"},
      {"GIF frame bomb", With(gif, 42, "\xFF\xFF\xFF\xFF"), "more than the limit"},
      {"GIF without width", With(With(gif, 6, "\0\0"s), 38, std::string(6, '\0')),
       "which is empty"},
      {"GIF, half", gif.substr(0, gif.size() - 12), "GIF, "},
      {"WebP, magic only", "RIFF\4\0\0\0WEBP"s, "WebP, "},
      {"WebP, half", File("rgb-80.webp").substr(0, 60), "WebP, "},
  };
  for (const auto& c : cases) {
    const auto picture = DecodeImage(test::FileOf(c.bytes));
    ASSERT_FALSE(picture.ok()) << c.what;
    EXPECT_EQ(picture.status().code(), StatusCode::kInput) << c.what;
    const std::string message = picture.status().message();
    EXPECT_NE(message.find(c.says), std::string::npos) << c.what << ": " << message;
    EXPECT_EQ(message.find("cat.img"), 0u) << message;
    EXPECT_FALSE(picture.status().hint().empty()) << c.what;
  }
}

TEST(HostileImageTest, LimitOfPixelsIsExact) {
  for (const std::string name : {"00-rgb.jpg", "rgb-8.png", "still.gif", "rgb-80.webp"}) {
    const std::string bytes = File(name);
    ImageFile file = test::FileOf(bytes);
    const auto picture = DecodeImage(file);
    ASSERT_TRUE(picture.ok());
    file.limits.max_pixels = int64_t{picture->width} * picture->height;
    EXPECT_TRUE(DecodeImage(file).ok()) << name;
    --file.limits.max_pixels;
    EXPECT_FALSE(DecodeImage(file).ok()) << name;
  }
}

// Pillow refuses these files too. A file cut after its last row is complete for both.
TEST(HostileImageTest, CutFilesAreErrorsUntilTheLastRowIsThere) {
  for (const std::string name : {"00-rgb.jpg", "rgb-8.png", "still.gif", "rgb-80.webp",
                                 "palette-8-interlaced.png", "rgba-lossless.webp"}) {
    const std::string bytes = File(name);
    for (size_t length = 0; length + 30 < bytes.size(); length += 1 + bytes.size() / 200) {
      EXPECT_FALSE(DecodeImage(test::FileOf(std::string_view(bytes).substr(0, length))).ok())
          << name << " cut to " << length;
    }
  }
  const std::string png = File("rgb-8.png");
  EXPECT_TRUE(DecodeImage(test::FileOf(std::string_view(png).substr(0, png.size() - 12))).ok());
}

// A file with a flipped byte must give an image of the file's size or an error.
TEST(HostileImageTest, DamagedFilesDoNoHarm) {
  const JsonNode table = test::JsonAt(test::ImagePath("files.json"));
  std::mt19937 random(17);
  for (const std::string& name : table.Find("files")->keys) {
    const std::string whole = File(name);
    for (int i = 0; i < 40; ++i) {
      std::string bytes = whole;
      for (int flips = 0; flips < 1 + i % 3; ++flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      ImageFile file = test::FileOf(bytes);
      file.limits.max_pixels = 1 << 20;
      const auto picture = DecodeImage(file);
      if (!picture.ok()) continue;
      EXPECT_LE(int64_t{picture->width} * picture->height, 1 << 20);
      EXPECT_EQ(picture->rgb.size(), picture->row_bytes() * static_cast<size_t>(picture->height));
    }
  }
}

TEST(HostileImageTest, DamagedOrientationIsNone) {
  const std::string entry = "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"s;
  const std::string tiff = "II*\0\x08\0\0\0\x01\0"s;
  EXPECT_EQ(OrientationOf(tiff + entry, ""), 6);
  EXPECT_EQ(OrientationOf("Exif\0\0"s + tiff + entry, ""), 6);
  EXPECT_EQ(OrientationOf("", ""), 1);
  EXPECT_EQ(OrientationOf("II", ""), 1);
  EXPECT_EQ(OrientationOf("XX*\0\x08\0\0\0"s, ""), 1);
  EXPECT_EQ(OrientationOf(tiff + entry.substr(0, 11), ""), 1);                 // cut
  EXPECT_EQ(OrientationOf(With(tiff, 4, "\xFF\xFF\xFF\xFF") + entry, ""), 1);  // past the end
  EXPECT_EQ(OrientationOf(With(tiff, 8, "\xFF\xFF") + entry, ""), 6);          // too many entries
  EXPECT_EQ(OrientationOf(tiff + With(entry, 8, "\x09"), ""), 1);              // invalid value
  EXPECT_EQ(OrientationOf(tiff + With(entry, 2, "\x02"), ""), 1);              // type is text
  EXPECT_EQ(OrientationOf("", "<tiff:Orientation>8</tiff:Orientation>"), 8);
  EXPECT_EQ(OrientationOf("", "tiff:Orientation=\"0\""), 1);
  EXPECT_EQ(OrientationOf("", "tiff:Orientation"), 1);
  EXPECT_EQ(OrientationOf("", "tiff:Orientation='3' tiff:Orientation=\"4\""), 4);
}

TEST(HostileImageTest, FilesAreLimited) {
  const auto processor = ImageProcessor::Create({}, {});
  ASSERT_TRUE(processor.ok());
  EXPECT_EQ(processor->Open("absent.jpg").status().message(),
            "cannot open image absent.jpg: No such file or directory");
  EXPECT_EQ(processor->Open("absent.jpg").status().code(), StatusCode::kInput);
  EXPECT_FALSE(processor->Open("/dev/zero").ok());
  EXPECT_FALSE(processor->Open(::testing::TempDir()).ok());
  ImageOptions options;
  options.limits.max_file_bytes = 100;
  const auto small = ImageProcessor::Create({}, options);
  EXPECT_EQ(small->Open(test::ImagePath("00-rgb.jpg")).status().code(), StatusCode::kInput);
}

}  // namespace
}  // namespace kuiper
