// How the matrix of a linear layer is stored: the format as a value, and a matrix in it. Loaders
// make them, the kernels of a format read its tensors. Everybody else asks for rows, bytes and the
// numeric type, and must not know which tensors a matrix consists of.
#pragma once

#include <cstdint>

#include "kuiper/base/tensor.h"

namespace kuiper {

struct WeightFormat {
  // Which kernels read it: the key of the backends' tables.
  enum class Kind : uint8_t { kF32, kF16, kBF16 };
  static constexpr int kNumKinds = 3;

  Kind kind = Kind::kF32;

  // The elements of a row one after the other, in a float type.
  static constexpr WeightFormat Dense(DType type) {
    return {type == DType::kF32 ? Kind::kF32 : type == DType::kF16 ? Kind::kF16 : Kind::kBF16};
  }

  // The float type that weights have as factors; a backend rounds x for it and no further.
  constexpr DType numeric_type() const {
    constexpr DType kTypes[kNumKinds] = {DType::kF32, DType::kF16, DType::kBF16};
    return kTypes[static_cast<int>(kind)];
  }
  // Bytes of `rows` rows of `in` elements.
  constexpr int64_t Bytes(int64_t rows, int64_t in) const {
    return rows * in * static_cast<int64_t>(DTypeBytes(numeric_type()));
  }
  bool operator==(const WeightFormat&) const = default;
};

// A matrix [out, in].
struct WeightMatrix {
  WeightFormat format;
  Tensor values;  // [out, in], row-major without gaps; any alignment of elements

  int64_t rows() const { return values.rows(); }
  // Whether the tensors are those of the format, for `in` columns, on this device.
  bool Fits(int64_t in, Device device) const {
    return values.rank == 2 && values.shape[1] == in && values.is_dense() &&
           values.dtype == format.numeric_type() && values.device == device &&
           (!values.empty() || values.numel() == 0);
  }
};

inline WeightMatrix DenseWeight(const Tensor& values) {
  return {WeightFormat::Dense(values.dtype), values};
}

}  // namespace kuiper
