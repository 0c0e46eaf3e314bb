// Rows of a quantised matrix as dense ones, for products that take nothing else.
#pragma once

#include <cstdint>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper::KU_GPU {

// out [n, in], dense, of a float type = rows [first_row, first_row + n) of the matrix, which has as
// many: (code - zero) * scale in FP32, rounded to the type of out.
void Dequantize(cudaStream_t stream, const WeightMatrix& matrix, int64_t first_row,
                const Tensor& out);

}  // namespace kuiper::KU_GPU
