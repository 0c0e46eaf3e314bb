// Calls a function of a given instruction set among those that Highway compiled, for tables that
// hold all of them; HWY_DYNAMIC_DISPATCH calls the best one only. Include it under HWY_ONCE, after
// targets.h and highway.h.
#pragma once

#include "hwy/highway.h"

#if HWY_TARGETS & HWY_AVX3
#define KU_CASE_AVX3(call) \
  case HWY_AVX3:           \
    return N_AVX3::call;
#else
#define KU_CASE_AVX3(call)
#endif
#if HWY_TARGETS & HWY_AVX2
#define KU_CASE_AVX2(call) \
  case HWY_AVX2:           \
    return N_AVX2::call;
#else
#define KU_CASE_AVX2(call)
#endif
#if HWY_TARGETS & HWY_SSE4
#define KU_CASE_SSE4(call) \
  case HWY_SSE4:           \
    return N_SSE4::call;
#else
#define KU_CASE_SSE4(call)
#endif
#if HWY_TARGETS & KU_NEON
#define KU_CASE_NEON(call) \
  case KU_NEON:            \
    return KU_N_NEON::call;
#else
#define KU_CASE_NEON(call)
#endif

// Returns `call` of instruction set `target`, or, if it was not compiled, of the baseline set that
// every machine of this architecture has.
#define KU_RETURN_FOR_TARGET(target, call) \
  switch (target) {                        \
    KU_CASE_AVX3(call)                     \
    KU_CASE_AVX2(call)                     \
    KU_CASE_SSE4(call)                     \
    KU_CASE_NEON(call)                     \
    default:                               \
      return HWY_STATIC_DISPATCH(call);    \
  }
