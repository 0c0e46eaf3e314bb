// __half and __nv_bfloat16 with the names of cuda_fp16.h and cuda_bf16.h, as far as kernels use
// them: bits, and conversions that are exact or rounded to nearest even, as on the device. Kernels
// compute in FP32. Conversions that CUDA makes implicitly are explicit here, so what compiles here
// compiles there.
#pragma once

#include <bit>
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
