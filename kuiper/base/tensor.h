// Tensor: a non-owning, strided view of memory on some device. Pass it by value. The memory belongs
// to a Buffer (buffer.h) or to a mapped file, which must outlive the view.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kuiper/base/check.h"
#include "kuiper/base/device.h"
#include "kuiper/base/dtype.h"

namespace kuiper {

struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device;
  int rank = 0;
  int64_t shape[kMaxRank] = {};
  int64_t stride[kMaxRank] = {};  // in elements; 1 for the innermost; a row stride may be larger

  // A dense (row-major, gap-free) view.
  static Tensor Dense(void* data, DType dtype, std::initializer_list<int64_t> shape,
                      Device device = {}) {
    KU_CHECK(shape.size() <= kMaxRank);
    Tensor t;
    t.data = data;
    t.dtype = dtype;
    t.device = device;
    for (int64_t extent : shape) t.shape[t.rank++] = extent;
    int64_t step = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
      t.stride[i] = step;
      step *= t.shape[i];
    }
    return t;
  }

  // Typed access; CHECKs that T is the tensor's element type.
  template <typename T>
  T* ptr() const {
    KU_CHECK(DTypeOf<std::remove_const_t<T>>::value == dtype, DTypeName(dtype));
    return static_cast<T*>(data);
  }
  template <typename T>
  T* row(int64_t i) const {
    return ptr<T>() + i * stride[0];
  }

  bool empty() const { return data == nullptr; }
  int64_t rows() const { return shape[0]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  // Size of a dense tensor of this shape.
  int64_t bytes() const { return numel() * static_cast<int64_t>(DTypeBytes(dtype)); }
  bool is_dense() const {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (shape[i] != 1 && stride[i] != step) return false;
      step *= shape[i];
    }
    return true;
  }

  // Rows [begin, end) of dimension 0.
  Tensor Rows(int64_t begin, int64_t end) const {
    KU_CHECK(rank >= 1 && begin >= 0 && begin <= end && end <= shape[0]);
    Tensor t = *this;
    t.shape[0] = end - begin;
    t.data = static_cast<char*>(data) + begin * stride[0] * static_cast<int64_t>(DTypeBytes(dtype));
    return t;
  }
  // Columns [begin, end) of a matrix; keeps the row stride.
  Tensor Cols(int64_t begin, int64_t end) const {
    KU_CHECK(rank == 2 && begin >= 0 && begin <= end && end <= shape[1]);
    Tensor t = *this;
    t.shape[1] = end - begin;
    t.data = static_cast<char*>(data) + begin * static_cast<int64_t>(DTypeBytes(dtype));
    return t;
  }
};

}  // namespace kuiper
