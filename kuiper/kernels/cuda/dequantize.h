// Converts rows of a quantised matrix to dense rows, for products that need dense operands.
#pragma once

#include <cstdint>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper::KU_GPU {

// Writes rows [first_row, first_row + n) of the matrix, which must have them, to `out` [n, in],
// dense, of a float type. Each element is (quantised value - zero point) * scale in FP32, rounded
// to the type of `out`.
void Dequantize(cudaStream_t stream, const WeightMatrix& matrix, int64_t first_row,
                const Tensor& out);

}  // namespace kuiper::KU_GPU
