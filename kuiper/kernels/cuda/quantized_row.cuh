// A row of a quantised matrix as kernels see it (ops/weight_format.h says how it lies in memory):
// which scale and zero a column has, and columns as FP32 values. What tensor cores get of the codes
// is for quantized_factors.cuh.
#pragma once

#include <cstdint>

#include "kuiper/kernels/cuda/numeric.cuh"
#include "kuiper/ops/weight_format.h"

namespace kuiper::KU_GPU {

struct QuantizedRow {
  const uint8_t* codes;
  const void* scales;    // of this row's groups
  const uint8_t* zeros;  // where there are none, bytes of scales that mean nothing
  bool has_zeros;

  // The zero of a group from what was loaded as such.
  __device__ __forceinline__ uint32_t ZeroOf(uint32_t loaded, uint32_t middle_code) const {
    return has_zeros ? loaded : middle_code;
  }
};

// The bits of a scale and, when they have arrived, its value: a kernel begins its loads before it
// uses one. Always two loads, of the two halves or twice of the same: of a choice between two loads
// into one register the second waits for the first.
struct ScaleBits {
  uint16_t low, high;
};
__device__ __forceinline__ ScaleBits LoadScale(const void* scales, DType type, int group) {
  const bool wide = type == DType::kF32;
  const uint16_t* p = static_cast<const uint16_t*>(scales) + (wide ? 2 * group : group);
  return {__ldg(p), __ldg(p + (wide ? 1 : 0))};
}
__device__ __forceinline__ float ScaleValue(ScaleBits bits, DType type) {
  const uint32_t low = type == DType::kF32 ? bits.low : 0;
  const float wide = __uint_as_float(static_cast<uint32_t>(bits.high) << 16 | low);
  return type == DType::kF16 ? Widen(Half{bits.low}) : wide;
}

// E4M3 has no infinities. Its NaN is refused where files are read, and is 480 here.
__device__ __forceinline__ float E4M3Value(uint32_t code) {
  const float magnitude = __uint_as_float((code & 0x7f) << 20) * 0x1p120f;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// What the rows of a quantised matrix have in common.
struct QuantizedForm {
  WeightFormat::Kind kind;
  DType scale_type;
  int code_bits;
  uint32_t middle_code;
  int group_rows;
  int64_t column_groups;  // of a row
  int64_t row_bytes;      // of codes
  // Bit s: a group ends, or may end, behind step s of the four steps of 32 columns in 128.
  uint32_t group_ends;
  // 2^40 divided by the steps of a group, rounded up; 0 when a row is one group.
  uint64_t groups_per_step;

  // Whether 128 columns may have more than one group.
  __device__ __forceinline__ bool exchanges() const { return group_ends != 0b1000; }
  // Exact for rows of up to 2^25 columns.
  __device__ __forceinline__ int GroupOf(int column) const {
    const uint64_t step = static_cast<uint64_t>(column) / WeightFormat::kQuantum;
    return static_cast<int>(step * groups_per_step >> 40);
  }
  __device__ __forceinline__ QuantizedRow RowOf(const void* codes, const void* scales,
                                                const uint8_t* zeros, int row) const {
    const int64_t scale_bytes = scale_type == DType::kF32 ? 4 : 2;
    const auto* first =
        static_cast<const uint8_t*>(scales) + row / group_rows * column_groups * scale_bytes;
    return {static_cast<const uint8_t*>(codes) + row * row_bytes, first,
            zeros == nullptr ? first : zeros + row * column_groups, zeros != nullptr};
  }
  // w = (code - zero) * scale, rounded once, of the kCount columns from `column`, a multiple of
  // kCount. Codes may lie at any address.
  template <int kCount>
  __device__ __forceinline__ void LoadValues(const QuantizedRow& row, int column,
                                             float (&w)[kCount]) const {
    static_assert(kCount % 2 == 0 && WeightFormat::kQuantum % kCount == 0);
    const int group = GroupOf(column);
    const float scale = ScaleValue(LoadScale(row.scales, scale_type, group), scale_type);
    const float zero = static_cast<float>(row.ZeroOf(__ldg(row.zeros + group), middle_code));
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      uint32_t codes[2];
      if (kind == WeightFormat::Kind::kInt4) {
        const uint32_t both = row.codes[(column + i) / 2];
        codes[0] = both & 0xf;
        codes[1] = both >> 4;
      } else {
        codes[0] = row.codes[column + i];
        codes[1] = row.codes[column + i + 1];
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float value = kind == WeightFormat::Kind::kE4M3 ? E4M3Value(codes[j])
                                                              : static_cast<float>(codes[j]) - zero;
        w[i + j] = value * scale;
      }
    }
  }
};

inline QuantizedForm MakeQuantizedForm(const WeightFormat& format, int in) {
  QuantizedForm form{};
  if (!format.is_quantized()) return form;
  form.kind = format.kind;
  form.scale_type = format.scale_type;
  form.code_bits = format.code_bits();
  form.middle_code = static_cast<uint32_t>(format.middle_code());
  form.group_rows = format.group_rows;
  form.column_groups = format.column_groups(in);
  form.row_bytes = format.RowBytes(in);
  const bool whole_rows = format.group_columns >= in;
  form.group_ends = whole_rows || format.group_columns % 128 == 0 ? 0b1000
                    : format.group_columns % 64 == 0              ? 0b1010
                                                                  : 0b1111;
  if (!whole_rows) {
    const uint64_t steps = format.group_columns / WeightFormat::kQuantum;
    form.groups_per_step = ((uint64_t{1} << 40) + steps - 1) / steps;
  }
  return form;
}

}  // namespace kuiper::KU_GPU
