// Dense rows as codes of 8 bits, for a matrix that is quantised while it is loaded. Pure functions.
#pragma once

#include <cstdint>

#include "kuiper/base/dtype.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper {

// Groups of 128 columns of a row, symmetric, with scales in FP32.
WeightFormat Int8RowsFormat();
// Row-major rows [rows, in] of a float type, not necessarily aligned, become codes [rows, in] and
// scales [rows, groups of in]: the largest magnitude of a group becomes 127 away from the middle.
// False when a value is not finite.
[[nodiscard]] bool QuantizeRows(const char* from, DType dtype, int64_t rows, int64_t in,
                                char* codes, float* scales);

}  // namespace kuiper
