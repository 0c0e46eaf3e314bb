// __half and __nv_bfloat16 with the names of cuda_fp16.h and cuda_bf16.h: conversions exact or
// rounded to nearest even, arithmetic rounded once per operation, as on the device. Conversions
// that CUDA makes implicitly are explicit here, so what compiles here compiles there.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kuiper/kernels/simt/vector_types.h"

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

  Float16() = default;
  explicit Float16(float x) : bits(Format::Encode(x)) {}
  explicit operator float() const { return Format::Decode(bits); }
  static Float16 FromBits(uint16_t bits) { return std::bit_cast<Float16>(bits); }
};

template <typename Format>
struct alignas(4) Float16x2 {
  Float16<Format> x, y;
};

// Sums and products of two 16-bit values are exact or correctly rounded in FP32 with enough spare
// bits that rounding twice is harmless; quotients likewise.
#define KU_SIMT_BINARY(op, name)                                       \
  template <typename F>                                                \
  Float16<F> operator op(Float16<F> a, Float16<F> b) {                 \
    return Float16<F>(static_cast<float>(a) op static_cast<float>(b)); \
  }                                                                    \
  template <typename F>                                                \
  Float16x2<F> operator op(Float16x2<F> a, Float16x2<F> b) {           \
    return {a.x op b.x, a.y op b.y};                                   \
  }                                                                    \
  template <typename F>                                                \
  Float16<F>& operator op##=(Float16<F>& a, Float16<F> b) {            \
    return a = a op b;                                                 \
  }                                                                    \
  namespace dialect {                                                  \
  template <typename F>                                                \
  Float16<F> name(Float16<F> a, Float16<F> b) {                        \
    return a op b;                                                     \
  }                                                                    \
  template <typename F>                                                \
  Float16x2<F> name##2(Float16x2<F> a, Float16x2<F> b) {               \
    return a op b;                                                     \
  }                                                                    \
  }
KU_SIMT_BINARY(+, __hadd)
KU_SIMT_BINARY(-, __hsub)
KU_SIMT_BINARY(*, __hmul)
KU_SIMT_BINARY(/, __hdiv)
#undef KU_SIMT_BINARY

#define KU_SIMT_COMPARE(op)                                \
  template <typename F>                                    \
  bool operator op(Float16<F> a, Float16<F> b) {           \
    return static_cast<float>(a) op static_cast<float>(b); \
  }
KU_SIMT_COMPARE(==)
KU_SIMT_COMPARE(!=)
KU_SIMT_COMPARE(<)
KU_SIMT_COMPARE(<=)
KU_SIMT_COMPARE(>)
KU_SIMT_COMPARE(>=)
#undef KU_SIMT_COMPARE

template <typename F>
Float16<F> operator-(Float16<F> a) {
  return Float16<F>::FromBits(static_cast<uint16_t>(a.bits ^ 0x8000u));
}

// a * b + c of 16-bit values, rounded to odd: rounding the result once more gives what rounding the
// exact value would (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums").
inline float MultiplyAddToOdd(float a, float b, float c) {
  const double product = static_cast<double>(a) * b;  // exact
  double sum = product + c;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double c_part = sum - product;
  const double error = (product - (sum - c_part)) + (c - c_part);
  if (error != 0 && std::bit_cast<uint64_t>(sum) % 2 == 0)
    sum = std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
  const float rounded = static_cast<float>(sum);
  if (!std::isfinite(rounded) || static_cast<double>(rounded) == sum) return rounded;
  if (std::bit_cast<uint32_t>(rounded) % 2 != 0) return rounded;
  return std::nextafter(rounded, sum > rounded ? INFINITY : -INFINITY);
}

namespace dialect {

using __half = Float16<HalfFormat>;
using __half2 = Float16x2<HalfFormat>;
using __nv_bfloat16 = Float16<BFloat16Format>;
using __nv_bfloat162 = Float16x2<BFloat16Format>;
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

template <typename F>
Float16<F> __hfma(Float16<F> a, Float16<F> b, Float16<F> c) {
  return Float16<F>(
      MultiplyAddToOdd(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)));
}
template <typename F>
Float16x2<F> __hfma2(Float16x2<F> a, Float16x2<F> b, Float16x2<F> c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <typename F>
Float16<F> __hneg(Float16<F> a) {
  return -a;
}
template <typename F>
Float16x2<F> __hneg2(Float16x2<F> a) {
  return {-a.x, -a.y};
}
template <typename F>
Float16<F> __habs(Float16<F> a) {
  return Float16<F>::FromBits(a.bits & 0x7FFFu);
}
template <typename F>
Float16<F> __hmax(Float16<F> a, Float16<F> b) {
  return Float16<F>(std::fmax(static_cast<float>(a), static_cast<float>(b)));
}
template <typename F>
Float16<F> __hmin(Float16<F> a, Float16<F> b) {
  return Float16<F>(std::fmin(static_cast<float>(a), static_cast<float>(b)));
}
template <typename F>
bool __hisnan(Float16<F> a) {
  return std::isnan(static_cast<float>(a));
}
template <typename F>
float __low2float(Float16x2<F> a) {
  return static_cast<float>(a.x);
}
template <typename F>
float __high2float(Float16x2<F> a) {
  return static_cast<float>(a.y);
}

inline float __half2float(__half a) {
  return static_cast<float>(a);
}
inline __half __float2half(float a) {
  return __half(a);
}
inline __half __float2half_rn(float a) {
  return __half(a);
}
inline float2 __half22float2(__half2 a) {
  return {__half2float(a.x), __half2float(a.y)};
}
inline __half2 __floats2half2_rn(float a, float b) {
  return {__half(a), __half(b)};
}
inline __half2 __float22half2_rn(float2 a) {
  return {__half(a.x), __half(a.y)};
}
inline __half2 __float2half2_rn(float a) {
  return {__half(a), __half(a)};
}
inline __half2 __halves2half2(__half a, __half b) {
  return {a, b};
}
inline __half2 __half2half2(__half a) {
  return {a, a};
}
inline __half __low2half(__half2 a) {
  return a.x;
}
inline __half __high2half(__half2 a) {
  return a.y;
}
inline uint16_t __half_as_ushort(__half a) {
  return a.bits;
}
inline __half __ushort_as_half(uint16_t a) {
  return __half::FromBits(a);
}

inline float __bfloat162float(__nv_bfloat16 a) {
  return static_cast<float>(a);
}
inline __nv_bfloat16 __float2bfloat16(float a) {
  return __nv_bfloat16(a);
}
inline __nv_bfloat16 __float2bfloat16_rn(float a) {
  return __nv_bfloat16(a);
}
inline float2 __bfloat1622float2(__nv_bfloat162 a) {
  return {__bfloat162float(a.x), __bfloat162float(a.y)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) {
  return {__nv_bfloat16(a.x), __nv_bfloat16(a.y)};
}
inline __nv_bfloat162 __float2bfloat162_rn(float a) {
  return {__nv_bfloat16(a), __nv_bfloat16(a)};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {a, b};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) {
  return {a, a};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) {
  return a.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) {
  return a.y;
}
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 a) {
  return a.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t a) {
  return __nv_bfloat16::FromBits(a);
}

}  // namespace dialect
}  // namespace kuiper::simt
