// Target attributes for instructions that Highway 1.0 does not support:
// - AVX512-BF16 (Zen 4, Sapphire Rapids) with the byte permutations of AVX512-VBMI. Of the CPUs
//   with AVX512-BF16 only Cooper Lake lacks AVX512-VBMI.
// - AVX512-VNNI, products of integers, which all of these and some older CPUs have (Cascade Lake,
//   Ice Lake).
// Code that uses them goes between HWY_PUSH_ATTRIBUTES with the attributes below and
// HWY_POP_ATTRIBUTES. Compiler flags for a whole file would not do: inline functions of the
// standard library must not be emitted with instructions that other CPUs lack.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define KU_HAS_AVX512_ATTRIBUTES 1

#ifndef __clang__
// GCC's own intrinsics use an uninitialised value where the operand is ignored.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "hwy/base.h"

#define KU_AVX512VNNI_ATTRIBUTES \
  "avx,avx2,fma,f16c,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni"
#define KU_AVX512BF16_ATTRIBUTES KU_AVX512VNNI_ATTRIBUTES ",avx512vbmi,avx512bf16"

namespace kuiper::cpu {
// True if the CPU has these extensions. Highway's AVX3 target must be checked separately.
inline bool HasAvx512Vnni() {
  return __builtin_cpu_supports("avx512vnni");
}
inline bool HasAvx512Bf16() {
  return HasAvx512Vnni() && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vbmi");
}
}  // namespace kuiper::cpu

#else
#define KU_HAS_AVX512_ATTRIBUTES 0

namespace kuiper::cpu {
inline bool HasAvx512Vnni() {
  return false;
}
inline bool HasAvx512Bf16() {
  return false;
}
}  // namespace kuiper::cpu
#endif
