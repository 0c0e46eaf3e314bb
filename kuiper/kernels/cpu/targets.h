// Which instruction sets Highway compiles the CPU kernels for; include before any hwy header. SVE
// and RVV registers have no compile-time size (arrays of them are impossible), SSSE3 is SSE4's
// twin, and AVX3_DL adds nothing that these kernels use.
#pragma once

#include "hwy/detect_compiler_arch.h"

#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_AVX3_DL)
