// The parts of __half and __nv_bfloat16 that kernels use, with the names of cuda_fp16.h and
// cuda_bf16.h. These are bits, and conversions that are exact or round to nearest even as on the
// device; kernels compute in FP32. Conversions that CUDA makes implicitly are explicit here, so
// code that compiles here compiles there.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kuiper::simt {

struct HalfFormat {
  static float Decode(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFFu) << 13;
    // Scaling rebiases the exponent and normalises subnormals; infinity and NaN keep theirs.
    const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    return std::bit_cast<float>(sign |
                                ((bits & 0x7C00u) == 0x7C00u ? magnitude | 0x7F800000u : finite));
  }
  static uint16_t Encode(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return 0x7FFF;
    if (a >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
    if (a < 0x38800000u) {  // subnormal: adding 0.5 makes the FP32 adder round at bit 2^-24
      const float shifted = std::bit_cast<float>(a) + 0.5f;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
    }
    return static_cast<uint16_t>(sign | ((a + 0xFFFu + ((a >> 13) & 1u) - 0x38000000u) >> 13));
  }
};

struct BFloat16Format {
  static float Decode(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  static uint16_t Encode(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
  }
};

// a * b + c of 16-bit numbers, rounded once. The FP32 intermediate is rounded to the neighbour with
// an odd last bit, so that the second rounding meets no false tie.
template <typename Format>
uint16_t Fma16(uint16_t a, uint16_t b, uint16_t c) {
  const double product = double{Format::Decode(a)} * Format::Decode(b);
  const double addend = Format::Decode(c), sum = product + addend, t = sum - product;
  const double lost = (product - (sum - t)) + (addend - t);
  auto result = static_cast<float>(sum);
  const double error = (sum - result) + lost;
  if (std::isfinite(result) && error != 0 && (std::bit_cast<uint32_t>(result) & 1) == 0) {
    result = std::nextafter(result, error > 0 ? INFINITY : -INFINITY);
  }
  return Format::Encode(result);
}
// Fma16 of the lower and of the upper halves.
template <typename Format>
uint32_t FmaPairs(uint32_t a, uint32_t b, uint32_t c) {
  const auto half = [](uint32_t x, int shift) { return static_cast<uint16_t>(x >> shift); };
  return Fma16<Format>(half(a, 0), half(b, 0), half(c, 0)) |
         static_cast<uint32_t>(Fma16<Format>(half(a, 16), half(b, 16), half(c, 16))) << 16;
}

template <typename Format>
struct Float16 {
  uint16_t bits;
};

namespace dialect {

using __half = Float16<HalfFormat>;
using __nv_bfloat16 = Float16<BFloat16Format>;

inline float __half2float(__half a) {
  return HalfFormat::Decode(a.bits);
}
inline __half __float2half_rn(float a) {
  return {HalfFormat::Encode(a)};
}
inline uint16_t __half_as_ushort(__half a) {
  return a.bits;
}
inline __half __ushort_as_half(uint16_t a) {
  return {a};
}
inline __nv_bfloat16 __float2bfloat16_rn(float a) {
  return {BFloat16Format::Encode(a)};
}
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 a) {
  return a.bits;
}

}  // namespace dialect
}  // namespace kuiper::simt
