// Tensor core instructions for whole warps, and arithmetic on their operands. All 32 lanes must
// reach the same call.
//   LoadMatrix(r, row)             ldmatrix: lane l passes the address of row l % 8
//                                  of matrix l / 8.
//                                  A matrix is 8x8 values of 16 bits; a row is 16 aligned bytes in
//                                  shared memory. Register i gets the elements 2 * (l % 4) and
//                                  2 * (l % 4) + 1 of row l / 4 of matrix i.
//   LoadMatrixTransposed(r, row)   The same elements of column l / 4.
//   Mma<T>(d, a, b)                d [16, 8] += a [16, 16] * b [16, 8], T Half or BFloat16, FP32 d.
//   FmaPairs<T>(a, b, c)           a * b + c of packed pairs of T, per lane, rounded once.
// Fragments, with group g = lane / 4 and pair p = 2 * (lane % 4).
//   a[0..3]  rows g, g+8, g, g+8 at columns p, p+1 (a[0], a[1]) and p+8, p+9 (a[2], a[3])
//   b[0..1]  rows p, p+1 and p+8, p+9 of column g
//   d[0..3]  row g at columns p, p+1, then row g+8
#pragma once

#include <cstdint>
#include <type_traits>

#include "kuiper/base/half.h"
#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

#if defined(KUIPER_SIMT)

inline void LoadMatrix(uint32_t (&r)[4], const void* row, KU_SIMT_SITE) {
  ::kuiper::simt::LoadMatrix<false>(r, row, {"LoadMatrix", file_, line_});
}
inline void LoadMatrixTransposed(uint32_t (&r)[4], const void* row, KU_SIMT_SITE) {
  ::kuiper::simt::LoadMatrix<true>(r, row, {"LoadMatrixTransposed", file_, line_});
}
template <typename T>
using EmulatedFormat = std::conditional_t<std::is_same_v<T, Half>, ::kuiper::simt::HalfFormat,
                                          ::kuiper::simt::BFloat16Format>;
template <typename T>
void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], KU_SIMT_SITE) {
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>);
  ::kuiper::simt::Mma16x8x16<EmulatedFormat<T>>(d, a, b, {"Mma", file_, line_});
}
template <typename T>
uint32_t FmaPairs(uint32_t a, uint32_t b, uint32_t c) {
  return ::kuiper::simt::FmaPairs<EmulatedFormat<T>>(a, b, c);
}

#else

// The "memory" clobbers keep the loads after the barrier or wait that makes their data visible. mma
// touches only registers and may be scheduled freely.
#define KU_LOAD_MATRIX(name, trans)                                                         \
  __device__ __forceinline__ void name(uint32_t(&r)[4], const void* row) {                  \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0,%1,%2,%3}, [%4];\n" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                           \
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))                \
                 : "memory");                                                               \
  }
KU_LOAD_MATRIX(LoadMatrix, "")
KU_LOAD_MATRIX(LoadMatrixTransposed, ".trans")
#undef KU_LOAD_MATRIX

template <typename T>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>);
  if constexpr (std::is_same_v<T, Half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

template <typename T>
__device__ __forceinline__ uint32_t FmaPairs(uint32_t a, uint32_t b, uint32_t c) {
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>);
  uint32_t d;
  if constexpr (std::is_same_v<T, Half>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

#endif

}  // namespace kuiper::KU_GPU
