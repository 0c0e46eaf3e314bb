// A row of a quantised matrix for kernels (ops/weight_format.h describes its memory layout): scale
// and zero point of a column, and columns as FP32 values. quantized_factors.cuh converts quantised
// values for tensor cores.
#pragma once

#include <cstdint>

#include "kuiper/kernels/cuda/numeric.cuh"
#include "kuiper/ops/weight_format.h"

namespace kuiper::KU_GPU {

struct QuantizedRow {
  const uint8_t* codes;
  const void* scales;    // scales of this row's groups
  const uint8_t* zeros;  // zero points; without them any readable bytes
  bool has_zeros;

  // Returns the zero point of a group; `loaded` was read from `zeros`.
  __device__ __forceinline__ uint32_t ZeroOf(uint32_t loaded, uint32_t default_zero) const {
    return has_zeros ? loaded : default_zero;
  }
};

// The bits of a scale, so that a kernel can issue several loads before it uses a value. There are
// always two loads: of the two halves, or twice of the same half. If the code chose between two
// loads into one register, the second would wait for the first.
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

// E4M3 has no infinities. Its NaN is refused when files are read, and becomes 480 here.
__device__ __forceinline__ float E4M3Value(uint32_t code) {
  const float magnitude = __uint_as_float((code & 0x7f) << 20) * 0x1p120f;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// Properties that all rows of a quantised matrix share.
struct QuantizedForm {
  WeightFormat::Kind kind;
  DType scale_type;
  int code_bits;
  uint32_t default_zero;
  int group_rows;
  int64_t column_groups;  // groups per row
  int64_t row_bytes;      // bytes of a row of quantised values
  // Bit s: a group ends, or may end, after step s of the four 32-column steps of 128 columns.
  uint32_t group_ends;
  // 2^40 divided by the steps of a group, rounded up; 0 if a row is one group.
  uint64_t groups_per_step;

  // True if 128 columns may have more than one group.
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
  // w = (quantised value - zero point) * scale, rounded once, for the kCount columns from `column`,
  // a multiple of kCount. Quantised values may have any alignment.
  template <int kCount>
  __device__ __forceinline__ void LoadValues(const QuantizedRow& row, int column,
                                             float (&w)[kCount]) const {
    static_assert(kCount % 2 == 0 && WeightFormat::kQuantum % kCount == 0);
    const int group = GroupOf(column);
    const float scale = ScaleValue(LoadScale(row.scales, scale_type, group), scale_type);
    const float zero = static_cast<float>(row.ZeroOf(__ldg(row.zeros + group), default_zero));
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
  form.default_zero = static_cast<uint32_t>(format.default_zero());
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
