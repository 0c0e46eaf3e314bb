// Quantises dense rows to INT8, for a matrix that is quantised while it is loaded. Pure functions.
#pragma once

#include <cstdint>

#include "kuiper/base/dtype.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper {

// Returns the format: groups of 128 columns of a row, symmetric, with scales in FP32.
WeightFormat Int8RowsFormat();
// Quantises row-major rows [rows, in] of a float type, not necessarily aligned, to codes [rows, in]
// and scales [rows, groups of in]. The largest magnitude of a group is 127 away from the middle
// code. Returns false if a value is not finite.
[[nodiscard]] bool QuantizeRows(const char* from, DType dtype, int64_t rows, int64_t in,
                                char* codes, float* scales);

}  // namespace kuiper
