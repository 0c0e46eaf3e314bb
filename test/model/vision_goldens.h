// The goldens of tools/make_vision_goldens.py: values of its hash function, and checkpoints made of
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kuiper/model/safetensors.h"
#include "test/model/model_files.h"

namespace kuiper::test {

// CRC-32 of zlib.
inline uint32_t Crc32(const std::string& text) {
  uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 == 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

// Returns [count] values: center + radius * the script's hashed(name, count), rounded once to FP32.
inline std::vector<float> HashedValues(const std::string& name, int64_t count, double center = 0,
                                       double radius = 1) {
  const uint32_t seed = Crc32(name);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    h = (h ^ h >> 16) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    h ^= h >> 16;
    values.push_back(
        static_cast<float>(center + radius * (static_cast<double>(h >> 8) / 0x1p23 - 1)));
  }
  return values;
}

// Writes the checkpoint for a golden folder of the vision encoder, without the prefix `removed` in
// the tensors' names.
inline void WriteVisionCheckpoint(const std::string& golden_dir, const TempDir& dir,
                                  const std::string& removed = "") {
  std::filesystem::copy_file(golden_dir + "/config.json", dir / "config.json");
  const auto json = nlohmann::json::parse(ReadFile(golden_dir + "/tensors.json"));
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : json["tensors"].items()) {
    int64_t count = 1;
    for (const int64_t extent : tensor["shape"]) count *= extent;
    const size_t begin = data.size();
    data += BytesOf(HashedValues(name, count, tensor["center"], tensor["radius"]));
    header[name.starts_with(removed) ? name.substr(removed.size()) : name] = {
        {"dtype", "F32"}, {"shape", tensor["shape"]}, {"data_offsets", {begin, data.size()}}};
  }
  WriteFile(dir / "model.safetensors", SafetensorsBytes(header.dump(), data));
}

// A tensor of a file of FP32 numbers.
inline std::vector<float> FloatsOf(const SafetensorsFile& file, const std::string& name) {
  const auto it = file.header().tensors.find(name);
  if (it == file.header().tensors.end()) {
    ADD_FAILURE() << file.path() << " has no " << name;
    return {};
  }
  const std::string_view bytes = file.Bytes(it->second);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace kuiper::test
