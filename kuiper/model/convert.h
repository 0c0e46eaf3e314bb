// Conversion of float weights between element types, for engines that convert and for kuiper_pack.
#pragma once

#include <cstdint>

#include "kuiper/base/dtype.h"

namespace kuiper {

// dst[0, n) = src[0, n), rounded to nearest even; neither pointer need be aligned. False when a
// finite value became infinite (too large for FP16).
[[nodiscard]] bool ConvertFloats(void* dst, DType dst_dtype, const void* src, DType src_dtype,
                                 int64_t n);

}  // namespace kuiper
