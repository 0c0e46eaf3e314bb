// A matrix quantised to a few bits: groups of neighbours along a row share a scale and a zero
// point. This file rounds values to codes and back. scale_search.h chooses the values to round;
// packing.h defines the layout of codes in a file. Pure functions of numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kuiper/base/dtype.h"

namespace kuiper {

struct CodeScheme {
  int bits = 4;  // 4 or 8
  int group_size = 128;
  bool symmetric = true;            // the zero point is the middle code
  DType scale_type = DType::kBF16;  // type of the stored scales

  int max_code() const { return (1 << bits) - 1; }
  int middle() const { return 1 << (bits - 1); }
};

// The quantisation grid of one group: the values (code - zero) * scale.
struct CodeGrid {
  float scale = 1;  // a value of the scheme's type, above 0
  int zero = 0;     // a code
};

// Returns the grid for a group whose extremes are multiplied by `shrink`; values outside become the
// nearest end. Symmetric grids are as in compressed-tensors: scale = largest / ((2^bits - 1) / 2).
// Others range from the smallest to the largest value and include 0.
CodeGrid GridOf(std::span<const float> group, float shrink, const CodeScheme& scheme);
// rounded[i] = the value of the grid nearest to group[i], ties to even.
void RoundTo(const CodeGrid& grid, const CodeScheme& scheme, std::span<const float> group,
             float* rounded);

// A quantised matrix [out, in]; `in` is a multiple of the group size.
struct CodedMatrix {
  CodeScheme scheme;
  int64_t out = 0, in = 0;
  std::vector<uint8_t> codes;   // [out, in]
  std::vector<CodeGrid> grids;  // [out, groups]

  int64_t groups() const { return in / scheme.group_size; }
};

// Quantises a matrix. `shrinks` is [out, groups], or empty for none. Threads divide the rows among
// them.
CodedMatrix Encode(std::span<const float> values, int64_t out, int64_t in,
                   std::span<const float> shrinks, const CodeScheme& scheme, int num_threads);
// Returns the dequantised values [out, in].
std::vector<float> Decode(const CodedMatrix& matrix);

}  // namespace kuiper
