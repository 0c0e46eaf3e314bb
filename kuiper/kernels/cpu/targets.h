// The instruction sets that Highway compiles the CPU kernels for; include before any hwy header.
// A list of what is used, because each release of Highway adds targets: one that is not listed
// would be compiled without the special paths below HWY_AVX3, HWY_AVX2 and KU_NEON, and chosen on
// the newest CPUs. SVE and RVV are left out since their registers have no compile-time size
// (arrays of them are impossible). test/ops/cpu_target_test.cpp checks the list.
#pragma once

// Highway has one NEON target for CPUs with AES instructions and, from 1.0.4 on, one without. No
// kernel uses AES, so the second one, which runs on all of them, replaces the first.
#define KU_NEON (HWY_NEON_WITHOUT_AES != 0 ? HWY_NEON_WITHOUT_AES : HWY_NEON)

#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | KU_NEON | HWY_EMU128 | HWY_SCALAR))

#include "hwy/detect_targets.h"

#ifdef HWY_NEON_WITHOUT_AES
#define KU_N_NEON N_NEON_WITHOUT_AES
#else
#define HWY_NEON_WITHOUT_AES 0LL
#define KU_N_NEON N_NEON
#endif
