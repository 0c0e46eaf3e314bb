// Converts the host's Tensor to the kernels' MatrixArg.
#pragma once

#include <cstdint>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cuda/numeric.cuh"

namespace kuiper::KU_GPU {

inline bool IsAligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

inline MatrixArg AsArg(const Tensor& t) {
  MatrixArg arg;
  arg.data = static_cast<char*>(t.data);
  arg.row_bytes =
      (t.rank == 1 ? t.shape[0] : t.stride[0]) * static_cast<int64_t>(DTypeBytes(t.dtype));
  arg.dtype = t.dtype;
  arg.vectors = IsAligned16(t.data) && (arg.row_bytes % 16 == 0 || t.rank == 1 || t.shape[0] <= 1);
  return arg;
}

inline int CeilDiv(int64_t a, int64_t b) {
  return static_cast<int>((a + b - 1) / b);
}

}  // namespace kuiper::KU_GPU
