// Helpers for the tests of images: files and tables of test/data/images, digests, and a generated
// picture that tools/make_image_goldens.py generates as well.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "kuiper/base/json.h"
#include "kuiper/base/sha256.h"
#include "kuiper/base/text.h"
#include "kuiper/io/image/picture.h"
#include "test/test_data.h"

namespace kuiper::test {

inline std::string ImagePath(const std::string& name) {
  return Source("test/data/images/" + name);
}

inline std::string FileBytes(const std::string& path) {
  auto bytes = ReadTextFile(path, size_t{64} << 20, StatusCode::kInput);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? *bytes : "";
}

// Returns a table of test/data/images, or of another path.
inline JsonNode JsonAt(const std::string& path) {
  auto json = ParseJson(FileBytes(path), StatusCode::kInput, path);
  EXPECT_TRUE(json.ok()) << json.status().message();
  return json.ok() ? *json : JsonNode();
}

inline int64_t Int(const JsonNode& object, std::string_view key) {
  const JsonNode* node = object.Find(key);
  return node == nullptr ? -1 : node->AsInt().value_or(-1);
}
inline std::string Text(const JsonNode& object, std::string_view key) {
  const JsonNode* node = object.Find(key);
  return node == nullptr ? "" : node->text;
}

template <typename T>
std::string Sha256Text(std::span<const T> values) {
  Sha256 sha;
  sha.Update({reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
  return HexText(sha.Finish());
}
inline std::string Sha256Text(const Picture& picture) {
  return Sha256Text(std::span<const uint8_t>(picture.rgb));
}

// Same as `generated` of tools/make_image_goldens.py.
inline Picture GeneratedPicture(int width, int height) {
  Picture picture{.width = width, .height = height, .rgb = {}};
  uint32_t state = 12345;
  for (int i = 0; i < width * height * 3; ++i) {
    state = (state * 1103515245u + 12345u) & 0x7FFFFFFF;
    picture.rgb.push_back(static_cast<uint8_t>(state >> 16));
  }
  return picture;
}

// A file of these bytes and this name, with the default limits.
inline ImageFile FileOf(std::string_view bytes, const std::string& name = "cat.img") {
  return {.bytes = bytes, .name = name, .limits = {}};
}

}  // namespace kuiper::test
