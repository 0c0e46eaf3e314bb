// 8-bit floating point values as plain bits, with exact conversions, as in the OCP 8-bit
// specification and PyTorch. E4M3 ("fn"): largest value 448, no infinity, 0x7F is NaN. E5M2:
// largest value 57344, infinities and NaNs as in IEEE 754. Rounding is to nearest, ties to even.
// Finite values saturate. Values that are not finite stay so, to keep broken computations visible:
// infinity becomes NaN in E4M3. Host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "kuiper/base/host_device.h"

namespace kuiper {

struct Float8E4M3 {
  uint8_t bits = 0;
};

struct Float8E5M2 {
  uint8_t bits = 0;
};

namespace float8 {

#if defined(__CUDA_ARCH__)
__device__ __forceinline__ uint32_t BitsOf(float x) {
  return __float_as_uint(x);
}
__device__ __forceinline__ float OfBits(uint32_t bits) {
  return __uint_as_float(bits);
}
#else
KU_HOST_DEVICE uint32_t BitsOf(float x) {
  return std::bit_cast<uint32_t>(x);
}
KU_HOST_DEVICE float OfBits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
#endif

// Differences between the two formats. Codes are without the sign.
struct Format {
  int mantissa_bits;
  int bias;           // exponent bias
  uint32_t max_code;  // the largest finite value
  uint32_t infinity;  // code that infinity converts to; codes above it are NaN
  uint32_t nan;
};

KU_HOST_DEVICE constexpr Format E4M3() {
  return {3, 7, 0x7E, 0x7F, 0x7F};
}
KU_HOST_DEVICE constexpr Format E5M2() {
  return {2, 15, 0x7B, 0x7C, 0x7F};
}

KU_HOST_DEVICE float Widen(uint8_t code, Format f) {
  const uint32_t magnitude = code & 0x7Fu, sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const int shift = 23 - f.mantissa_bits;
  if (magnitude > f.max_code) {
    return OfBits(sign |
                  (magnitude == f.infinity && f.infinity != f.nan ? 0x7F800000u : 0x7FC00000u));
  }
  if (magnitude >> f.mantissa_bits != 0) {
    return OfBits(sign | ((magnitude << shift) + (static_cast<uint32_t>(127 - f.bias) << 23)));
  }
  // Subnormal: the mantissa in units of 2^(1 - bias - mantissa_bits).
  const float unit = OfBits(static_cast<uint32_t>(128 - f.bias - f.mantissa_bits) << 23);
  return OfBits(sign | BitsOf(static_cast<float>(magnitude) * unit));
}

KU_HOST_DEVICE uint8_t Narrow(float x, Format f) {
  const uint32_t u = BitsOf(x), sign = u >> 24 & 0x80u, a = u & 0x7FFFFFFFu;
  const int shift = 23 - f.mantissa_bits;
  const uint32_t rebias = static_cast<uint32_t>(127 - f.bias) << 23;
  uint32_t code = 0;
  if (a >= 0x7F800000u) {
    code = a == 0x7F800000u ? f.infinity : f.nan;
  } else if (a >= (f.max_code << shift) + rebias) {
    code = f.max_code;
  } else if (a < rebias + (1u << 23)) {
    // Subnormal or zero: adding 2^23 units makes the FP32 adder round to whole units.
    const uint32_t anchor = static_cast<uint32_t>(151 - f.bias - f.mantissa_bits) << 23;
    code = BitsOf(OfBits(a) + OfBits(anchor)) - anchor;
  } else {
    code = (a + (1u << (shift - 1)) - 1u + (a >> shift & 1u) - rebias) >> shift;
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace float8

KU_HOST_DEVICE float ToFloat(Float8E4M3 x) {
  return float8::Widen(x.bits, float8::E4M3());
}
KU_HOST_DEVICE float ToFloat(Float8E5M2 x) {
  return float8::Widen(x.bits, float8::E5M2());
}
KU_HOST_DEVICE Float8E4M3 ToFloat8E4M3(float x) {
  return {float8::Narrow(x, float8::E4M3())};
}
KU_HOST_DEVICE Float8E5M2 ToFloat8E5M2(float x) {
  return {float8::Narrow(x, float8::E5M2())};
}

}  // namespace kuiper
