// The instruction sets that Highway compiles the CPU kernels for; include before any hwy header.
// The list names the targets in use and disables all others, because each release of Highway adds
// targets. A new target would be compiled without the special paths for HWY_AVX3, HWY_AVX2 and
// KU_NEON, and chosen on the newest CPUs. SVE and RVV are excluded: their registers have no
// compile-time size, so arrays of them are impossible. test/ops/cpu_target_test.cpp checks the
// list.
#pragma once

// Highway has a NEON target for CPUs with AES instructions and, since 1.0.4, one without. No kernel
// uses AES, so the target without AES, which runs on all CPUs with NEON, replaces the other.
#define KU_NEON (HWY_NEON_WITHOUT_AES != 0 ? HWY_NEON_WITHOUT_AES : HWY_NEON)

#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | KU_NEON | HWY_EMU128 | HWY_SCALAR))

#include "hwy/detect_targets.h"

#ifdef HWY_NEON_WITHOUT_AES
#define KU_N_NEON N_NEON_WITHOUT_AES
#else
#define HWY_NEON_WITHOUT_AES 0LL
#define KU_N_NEON N_NEON
#endif
