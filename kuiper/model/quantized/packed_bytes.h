// Helpers that the packings share, for 32-bit words in a file and for tensors that are transposed
// there. Files are little-endian, and so is every machine this runs on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "kuiper/model/quantized/packed_matrix.h"

namespace kuiper {

template <typename T>
T LoadWord(const char* from) {
  T word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Returns code `i` of a word, counted from the low bits.
inline uint32_t CodeOf(uint32_t word, int i, int bits) {
  return (word >> (i * bits)) & ((1u << bits) - 1);
}

// Transposes a piece of the file's tensor [units, n] of elements of T into [n, units].
template <typename T>
void Transpose(const PackedTensor& tensor, PackedTensor::Piece piece, char* out) {
  constexpr int64_t kBlock = 64 / sizeof(T);  // columns of the file that share a cache line
  const int64_t n = tensor.unit_bytes / static_cast<int64_t>(sizeof(T));
  const int64_t units = static_cast<int64_t>(tensor.stored.bytes.size()) / tensor.unit_bytes;
  const int64_t count = static_cast<int64_t>(piece.bytes.size()) / tensor.unit_bytes;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    for (int64_t column = begin; column < std::min(n, begin + kBlock); ++column) {
      const char* from = piece.bytes.data() + column * static_cast<int64_t>(sizeof(T));
      char* to = out + (column * units + piece.first) * static_cast<int64_t>(sizeof(T));
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), from + i * tensor.unit_bytes,
                    sizeof(T));
      }
    }
  }
}

// Scales and zero points of a file with tensors [groups, out], where a word holds several zero
// points. `unpack` reads the words. Symmetric zero points are verified and then dropped.
PackedTensor ScalesByGroup(StoredTensor stored);
PackedTensor ZerosByGroup(const QuantizationConfig& config, StoredTensor stored, int64_t out,
                          decltype(PackedTensor::unpack) unpack);
// Helper of such an `unpack`: row i of the rows that share a word has the code at position[i].
void UnpackZerosByGroup(const PackedTensor& tensor, PackedTensor::Piece piece,
                        std::span<const int> position, char* out);

}  // namespace kuiper
