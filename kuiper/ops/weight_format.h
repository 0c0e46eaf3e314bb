// Storage format of a linear layer's matrix, and a matrix in that format. Loaders make matrices,
// and the kernels of a format read its tensors. All other code uses only rows, bytes and the
// numeric type, and must not depend on which tensors a matrix has.
//
// A quantised weight is (code - zero) * scale. Codes are unsigned integers of 4 or 8 bits, or
// floats of 8 bits (these have no zero point). Groups of columns share a scale; rows have their own
// scales or share them in blocks. Codes and scales have the layout of common files
// (compressed-tensors' pack-quantized, Qwen's FP8), so that these are used in place when mapped.
// Readers of other formats rearrange codes into this layout.
#pragma once

#include <cstdint>

#include "kuiper/base/tensor.h"

namespace kuiper {

struct WeightFormat {
  // Selects the kernels: the key of the backends' tables.
  enum class Kind : uint8_t { kF32, kF16, kBF16, kInt4, kInt8, kE4M3 };
  static constexpr int kNumKinds = 6;
  // The number of columns of a quantised matrix is a multiple of this.
  static constexpr int kQuantum = 32;

  Kind kind = Kind::kF32;
  // Only for quantised kinds from here on.
  DType operand_type = DType::kF32;  // numeric_type()
  DType scale_type = DType::kF32;    // FP16, BF16 or FP32; scales keep the precision of their file
  // Columns that share a scale; all columns if it is at least a row's length.
  int group_columns = 0;
  int group_rows = 0;  // rows that share a scale

  // Returns the format of a dense row-major matrix of a float type.
  static constexpr WeightFormat Dense(DType type) {
    return {type == DType::kF32 ? Kind::kF32 : type == DType::kF16 ? Kind::kF16 : Kind::kBF16};
  }

  constexpr bool is_quantized() const { return kind >= Kind::kInt4; }
  constexpr bool has_integers() const { return kind == Kind::kInt4 || kind == Kind::kInt8; }
  constexpr int code_bits() const { return kind == Kind::kInt4 ? 4 : 8; }
  // The default zero point, for a matrix without zero points of its own.
  constexpr int default_zero() const {
    return kind == Kind::kInt4 ? 8 : kind == Kind::kInt8 ? 128 : 0;
  }
  // The float type of weights, or of codes minus zero points, as operands of the product. It
  // represents each code exactly. A backend rounds x to this type and no further, except that the
  // CPU may multiply integer codes with x as INT16. INT8 (CPU and integer codes only): x is rounded
  // to INT8.
  constexpr DType numeric_type() const {
    constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
    return is_quantized() ? operand_type : kTypes[static_cast<int>(kind)];
  }
  // Number of scales of a row, and number of rows of scales.
  constexpr int64_t column_groups(int64_t in) const {
    return (in + group_columns - 1) / group_columns;
  }
  constexpr int64_t row_groups(int64_t rows) const { return (rows + group_rows - 1) / group_rows; }
  // Columns whose sum is multiplied by a scale at a time.
  constexpr int unit_columns() const { return group_columns < 128 ? group_columns : 128; }
  // True if kernels support groups of this size in a matrix of `in` columns.
  constexpr bool SupportsGroups(int64_t in) const {
    return in % kQuantum == 0 && group_rows > 0 &&
           (group_columns == 32 || group_columns == 64 ||
            (group_columns > 0 && (group_columns % 128 == 0 || group_columns >= in)));
  }
  // Returns the bytes of `in` columns of one row, without scales.
  constexpr int64_t RowBytes(int64_t in) const {
    return is_quantized() ? in * code_bits() / 8
                          : in * static_cast<int64_t>(DTypeBytes(numeric_type()));
  }
  // Returns the bytes of `rows` rows of `in` elements with their scales, without zero points.
  constexpr int64_t Bytes(int64_t rows, int64_t in) const {
    if (!is_quantized()) return rows * RowBytes(in);
    return rows * RowBytes(in) +
           row_groups(rows) * column_groups(in) * static_cast<int64_t>(DTypeBytes(scale_type));
  }
  bool operator==(const WeightFormat&) const = default;
};

// A matrix [out, in].
struct WeightMatrix {
  WeightFormat format;
  // [out, in] of a float type; quantised: bytes [out, in * code_bits() / 8]. Of two codes in a
  // byte, the low bits hold the even column. Row-major without gaps; any alignment of elements.
  Tensor values;
  Tensor scales = {};  // [row_groups, column_groups] of scale_type; empty: not quantised
  // Bytes [out, column_groups], one zero point each; empty: all are default_zero().
  Tensor zeros = {};
  // Ops::Prepack has rearranged the whole matrix into an internal order, which only Apply and Embed
  // can read.
  bool is_prepacked = false;

  int64_t rows() const { return values.rows(); }
  int64_t bytes() const { return values.bytes() + BytesOf(scales) + BytesOf(zeros); }
  // True if the tensors match the format, for `in` columns, on this device.
  bool Fits(int64_t in, Device device) const {
    if (!format.is_quantized()) return Holds(values, format.numeric_type(), -1, in, device);
    return format.SupportsGroups(in) &&
           Holds(values, DType::kU8, -1, format.RowBytes(in), device) &&
           Holds(scales, format.scale_type, format.row_groups(rows()), format.column_groups(in),
                 device) &&
           (zeros.rank == 0 || Holds(zeros, DType::kU8, rows(), format.column_groups(in), device));
  }

 private:
  // An empty tensor has no shape; the product over its dimensions would be 1.
  static int64_t BytesOf(const Tensor& t) { return t.rank == 0 ? 0 : t.bytes(); }
  // rows < 0: any number.
  static bool Holds(const Tensor& t, DType type, int64_t rows, int64_t columns, Device device) {
    return t.rank == 2 && (rows < 0 || t.shape[0] == rows) && t.shape[1] == columns &&
           t.is_dense() && t.dtype == type && t.device == device && (!t.empty() || t.numel() == 0);
  }
};

inline WeightMatrix DenseWeight(const Tensor& values) {
  return {WeightFormat::Dense(values.dtype), values, {}, {}};
}

}  // namespace kuiper
