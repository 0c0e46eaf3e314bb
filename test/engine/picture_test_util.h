// Pictures and prompts of test/data/vision/tiny, the same as in tools/make_vision_goldens.py.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/engine/engine.h"
#include "test/engine/engine_test_util.h"
#include "test/test_data.h"

namespace kuiper::test {

inline constexpr VisionTokens kVisionTokens{
    .image_pad = 90, .video_pad = 91, .vision_start = 92, .vision_end = 93};
inline constexpr int kPatchValues = 3 * 2 * 4 * 4;

// CRC-32 of a name (IEEE 802.3), bit by bit.
inline uint32_t Crc32(const std::string& name) {
  uint32_t crc = ~0u;
  for (const char c : name) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

// The script's `hashed`: values in [-1, 1) that depend only on the name.
inline std::vector<float> HashedValues(const std::string& name, int64_t count) {
  const uint32_t seed = Crc32(name);
  std::vector<float> values;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t h = i * 2654435761u + seed;
    h = (h ^ h >> 16) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    h ^= h >> 16;
    values.push_back(static_cast<float>(h >> 8) / (1 << 23) - 1);
  }
  return values;
}

// A picture whose pixels and digest depend on the name; a video if it has several frames.
inline VisionInput MakePicture(const std::string& name, PatchGrid grid) {
  VisionInput picture;
  picture.patches = HashedValues(name, grid.num_patches() * kPatchValues);
  picture.grid = grid;
  picture.merge_size = 2;
  for (int i = 0; i < grid.t && grid.t > 1; ++i) picture.seconds.push_back(0.5 * i);
  const std::vector<float> digest = HashedValues("digest of " + name, 4);
  std::memcpy(picture.digest.data(), digest.data(), picture.digest.size());
  picture.source = name;
  return picture;
}

struct PicturePrompt {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<VisionInput> pictures;
  std::vector<std::vector<int32_t>> positions;  // [3][S]
  int delta = 0;
  std::vector<int32_t> greedy;
};

inline std::vector<int32_t> Numbers(const JsonNode& array) {
  std::vector<int32_t> numbers;
  for (const JsonNode& item : array.items) {
    numbers.push_back(static_cast<int32_t>(item.AsInt().value()));
  }
  return numbers;
}

inline std::string TinyVision() {
  return Source("test/data/vision/tiny");
}

inline std::vector<PicturePrompt> PicturePrompts() {
  const std::string path = TinyVision() + "/prompts.json";
  const std::string text = ReadTextFile(path, 1 << 20, StatusCode::kInput).value();
  const JsonNode root = ParseJson(text, StatusCode::kInput, path).value();
  std::vector<PicturePrompt> prompts;
  for (size_t i = 0; i < root.keys.size(); ++i) {
    const JsonNode& entry = root.items[i];
    PicturePrompt prompt{.name = root.keys[i],
                         .ids = Numbers(*entry.Find("ids")),
                         .pictures = {},
                         .positions = {},
                         .delta = static_cast<int>(entry.Find("delta")->AsInt().value()),
                         .greedy = Numbers(*entry.Find("greedy"))};
    for (const JsonNode& picture : entry.Find("pictures")->items) {
      const std::vector<int32_t> grid = Numbers(*picture.Find("grid"));
      prompt.pictures.push_back(
          MakePicture(picture.Find("name")->text, {grid[0], grid[1], grid[2]}));
    }
    for (const JsonNode& axis : entry.Find("positions")->items) {
      prompt.positions.push_back(Numbers(axis));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

inline PicturePrompt FindPrompt(const std::string& name) {
  for (PicturePrompt& prompt : PicturePrompts()) {
    if (prompt.name == name) return std::move(prompt);
  }
  ADD_FAILURE() << "no prompt " << name;
  return {};
}

// Ids of text that depend only on the name.
inline std::vector<int32_t> TextIds(const std::string& name, int count) {
  std::vector<int32_t> ids;
  for (const float value : HashedValues(name, count)) {
    ids.push_back(2 + static_cast<int32_t>((value + 1) / 2 * 80));
  }
  return ids;
}

// The tokens of an image.
inline std::vector<int32_t> ImageIds(PatchGrid grid) {
  std::vector<int32_t> ids(grid.num_patches() / 4 + 2, kVisionTokens.image_pad);
  ids.front() = kVisionTokens.vision_start;
  ids.back() = kVisionTokens.vision_end;
  return ids;
}

}  // namespace kuiper::test
