// Converts quantised values into operands of the tensor cores. A warp reads 16 bytes per lane. If a
// group has fewer than 128 columns, the lanes of a quad (4 lanes with one row) exchange values.
// Then they hold 32 neighbouring columns at a time, which share a scale. 8 quantised values become
// 8 operands, value - zero point, exact in FP16 or BF16. This conversion takes 13 instructions for
// 8 INT4 values, 8 for INT8 in FP16, otherwise 20.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kuiper/kernels/cuda/mma.cuh"
#include "kuiper/kernels/cuda/numeric.cuh"
#include "kuiper/ops/weight_format.h"

namespace kuiper::KU_GPU {

// Exchanges words between lanes whose indices differ in the bit `lanes`: the lane with the bit set
// sends its `low` and receives the other lane's `high`.
__device__ __forceinline__ void Exchange(int lanes, uint32_t& low, uint32_t& high) {
  const bool upper = (threadIdx.x & static_cast<unsigned>(lanes)) != 0;
  const uint32_t got = __shfl_xor_sync(kFullWarp, upper ? low : high, lanes);
  low = upper ? got : low;
  high = upper ? high : got;
}

// The quantised values of 128 columns of one row, in four steps of 8 columns per lane. Lane t of a
// quad loads bytes [16 t, 16 t + 16) of each 64. If all columns share a scale, the steps are these
// bytes in order. Otherwise the lanes exchange values so that step s holds columns [32 s, 32 s +
// 32).
template <int kCodeBits>
struct CodeBlock {
  static constexpr int kLoads = kCodeBits / 4;  // loads of 16 bytes each
  static constexpr int kWords = kCodeBits / 4;  // 32-bit words of one step (8 values)
  uint4 loads[kLoads];

  // First column of lane t's load, relative to the block.
  static __device__ __forceinline__ int LoadColumn(int load, int t) {
    return kCodeBits == 4 ? 32 * t : 64 * load + 16 * t;
  }
  // First of the 8 columns of step s: FirstColumn + s / kNear * 64 + s % kNear * near, where near
  // is NearColumns.
  static constexpr int kNear = kCodeBits == 4 ? 4 : 2;
  static __device__ __forceinline__ int FirstColumn(int t, bool exchanged) {
    if (!exchanged) return LoadColumn(0, t);
    return kCodeBits == 4 ? 8 * t : 16 * (t % 2) + 8 * (t / 2);
  }
  static __device__ __forceinline__ int NearColumns(bool exchanged) { return exchanged ? 32 : 8; }

  // Words [s * kWords, (s + 1) * kWords) belong to step s.
  __device__ __forceinline__ void Arrange(bool exchanged, uint32_t (&words)[4 * kWords]) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      uint4 v = loads[i];
      if (exchanged) {
        if constexpr (kCodeBits == 4) {
          Exchange(1, v.x, v.y);
          Exchange(1, v.z, v.w);
        }
        Exchange(2, v.x, v.z);
        Exchange(2, v.y, v.w);
      }
      words[4 * i] = v.x;
      words[4 * i + 1] = v.y;
      words[4 * i + 2] = v.z;
      words[4 * i + 3] = v.w;
    }
  }
};

// Factors(codes, zero) converts 8 quantised values to 4 packed pairs of T, in order. `zero` is the
// result of Zero(zero point); both are computed once per group.
template <WeightFormat::Kind kKind, typename T>
struct CodeFactors;

// Bits of 2^10 (FP16) or 2^7 (BF16): a value put into the low bits is added to this number.
template <typename T>
constexpr uint32_t kMagic = std::is_same_v<T, Half> ? 0x6400u : 0x4300u;
template <typename T>
constexpr uint32_t kOnes = std::is_same_v<T, Half> ? 0x3c003c00u : 0x3f803f80u;

// For 4-bit values, and for 8-bit values if T holds kMagic + 255: each value is paired with the
// upper byte of the magic number.
template <typename T>
__device__ __forceinline__ uint32_t MagicZero(uint32_t code) {
  return (0x8000u | kMagic<T> | code) * 0x10001u;
}
template <typename T>
__device__ __forceinline__ void MagicFactors(const uint32_t (&codes)[2], uint32_t zero,
                                             uint32_t (&pairs)[4]) {
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t both = __byte_perm(codes[i / 2], kMagic<T> >> 8, i % 2 == 0 ? 0x4140 : 0x4342);
    pairs[i] = FmaPairs<T>(both, kOnes<T>, zero);
  }
}

template <typename T>
struct CodeFactors<WeightFormat::Kind::kInt4, T> {
  static __device__ __forceinline__ uint32_t Zero(uint32_t code) { return MagicZero<T>(code); }
  static __device__ __forceinline__ void Factors(const uint32_t (&codes)[1], uint32_t zero,
                                                 uint32_t (&pairs)[4]) {
    const uint32_t even = codes[0] & 0x0f0f0f0fu, odd = codes[0] >> 4 & 0x0f0f0f0fu;
    MagicFactors<T>({__byte_perm(even, odd, 0x5140), __byte_perm(even, odd, 0x7362)}, zero, pairs);
  }
};

template <>
struct CodeFactors<WeightFormat::Kind::kInt8, Half> {
  static __device__ __forceinline__ uint32_t Zero(uint32_t code) { return MagicZero<Half>(code); }
  static __device__ __forceinline__ void Factors(const uint32_t (&codes)[2], uint32_t zero,
                                                 uint32_t (&pairs)[4]) {
    MagicFactors<Half>(codes, zero, pairs);
  }
};

// BF16 holds -255 to 255 but not 128 + 255. So the difference is computed in FP32 from 2^23 +
// value; the lower half of its bits is zero.
template <>
struct CodeFactors<WeightFormat::Kind::kInt8, BFloat16> {
  static __device__ __forceinline__ uint32_t Zero(uint32_t code) { return 0xcb000000u | code; }
  static __device__ __forceinline__ void Factors(const uint32_t (&codes)[2], uint32_t zero,
                                                 uint32_t (&pairs)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t first = i % 2 * 2;
      const uint32_t low = __byte_perm(codes[i / 2], 0x4b000000u, 0x7440u + first);
      const uint32_t high = __byte_perm(codes[i / 2], 0x4b000000u, 0x7441u + first);
      pairs[i] =
          __byte_perm(__float_as_uint(__uint_as_float(low) + __uint_as_float(zero)),
                      __float_as_uint(__uint_as_float(high) + __uint_as_float(zero)), 0x7632u);
    }
  }
};

// The bits of E4M3 are shifted to where T has its exponent and fraction. They are then the value
// divided by a power of two, subnormals included, so the product is exact.
template <typename T>
struct CodeFactors<WeightFormat::Kind::kE4M3, T> {
  static constexpr bool kIsHalf = std::is_same_v<T, Half>;
  static __device__ __forceinline__ uint32_t Zero(uint32_t) { return 0; }
  static __device__ __forceinline__ void Factors(const uint32_t (&codes)[2], uint32_t zero,
                                                 uint32_t (&pairs)[4]) {
    constexpr uint32_t kRebias = kIsHalf ? 0x5c005c00u : 0x7b807b80u;  // 2^8, 2^120
    constexpr uint32_t kMagnitude = kIsHalf ? 0x3f803f80u : 0x07f007f0u;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      // Puts one value into the upper byte of each half.
      const uint32_t both = __byte_perm(codes[i / 2], 0, i % 2 == 0 ? 0x1404u : 0x3424u);
      const uint32_t bits = ((both >> (kIsHalf ? 1 : 4)) & kMagnitude) | (both & 0x80008000u);
      pairs[i] = FmaPairs<T>(bits, kRebias, zero);
    }
  }
};

}  // namespace kuiper::KU_GPU
