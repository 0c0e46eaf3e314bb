// Small model files for the tests of this folder: a safetensors writer that shares no code with the
// library, and reference data readers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "kuiper/model/decoder.h"
#include "kuiper/model/manifest.h"
#include "test/temp_dir.h"

namespace kuiper::test {

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.good()) << path;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// Number of weights, tied embeddings counted once.
inline int64_t ParameterCount(const ModelConfig& config) {
  DecoderWeights ignored;
  int64_t count = 0;
  for (const Weight& weight : ListWeights(config, &ignored).weights) count += weight.num_values();
  return count;
}

// The bytes of a file with this header text and data.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// float32 matrix of a version 1.0 .npy file.
struct NpyMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;
};
inline NpyMatrix ReadNpy(const std::string& path) {
  const std::string bytes = ReadFile(path);
  NpyMatrix m;
  if (bytes.size() < 10 || bytes.compare(0, 6, "\x93NUMPY") != 0) {
    ADD_FAILURE() << path << " is no .npy file";
    return m;
  }
  const size_t header_bytes = static_cast<unsigned char>(bytes[8]) |
                              static_cast<size_t>(static_cast<unsigned char>(bytes[9])) << 8;
  const std::string header = bytes.substr(10, header_bytes);
  EXPECT_NE(header.find("'<f4'"), std::string::npos) << header;
  EXPECT_NE(header.find("'fortran_order': False"), std::string::npos) << header;
  std::istringstream shape(header.substr(header.find('(') + 1));
  char comma;
  shape >> m.rows >> comma >> m.cols;
  m.values.resize(static_cast<size_t>(m.rows * m.cols));
  EXPECT_EQ(bytes.size(), 10 + header_bytes + m.values.size() * 4) << path;
  std::memcpy(m.values.data(), bytes.data() + 10 + header_bytes,
              std::min(bytes.size() - 10 - header_bytes, m.values.size() * 4));
  return m;
}

}  // namespace kuiper::test
