// A matrix as codes of a few bits: groups of neighbours along a row share a scale and a zero. How
// values are rounded, and what they become; which values to round is scale_search.h, how codes lie
// in a file packing.h. Pure functions of numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kuiper/base/dtype.h"

namespace kuiper {

struct CodeScheme {
  int bits = 4;  // 4 or 8
  int group_size = 128;
  bool symmetric = true;            // the zero is the middle code
  DType scale_type = DType::kBF16;  // in which scales are stored

  int max_code() const { return (1 << bits) - 1; }
  int middle() const { return 1 << (bits - 1); }
};

// The values (code - zero) * scale of one group.
struct CodeGrid {
  float scale = 1;  // a value of the scheme's type, above 0
  int zero = 0;     // a code
};

// The grid for a group whose extremes are multiplied by `shrink`: what lies outside becomes the
// nearest end. Symmetric as compressed-tensors has it, scale = largest / ((2^bits - 1) / 2); else
// from the smallest to the largest value, 0 among them.
CodeGrid GridOf(std::span<const float> group, float shrink, const CodeScheme& scheme);
// rounded[i]: the value of the grid nearest to group[i], ties to even.
void RoundTo(const CodeGrid& grid, const CodeScheme& scheme, std::span<const float> group,
             float* rounded);

// A matrix [out, in], in a multiple of the group size.
struct CodedMatrix {
  CodeScheme scheme;
  int64_t out = 0, in = 0;
  std::vector<uint8_t> codes;   // [out, in]
  std::vector<CodeGrid> grids;  // [out, groups]

  int64_t groups() const { return in / scheme.group_size; }
};

// `shrinks` [out, groups], or empty: none. The rows are shared among threads.
CodedMatrix Encode(std::span<const float> values, int64_t out, int64_t in,
                   std::span<const float> shrinks, const CodeScheme& scheme, int num_threads);
// The values [out, in].
std::vector<float> Decode(const CodedMatrix& matrix);

}  // namespace kuiper
