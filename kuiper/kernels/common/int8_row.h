// How a row becomes integers: value = code * scale with the scale that makes the largest magnitude
// the largest code. Both backends store INT8 rows of the KV cache so, each row by itself: what it
// becomes depends on nothing but its own values.
#pragma once

#include <cstdint>

#include "kuiper/base/float8.h"
#include "kuiper/base/host_device.h"

namespace kuiper {

struct CodeScale {
  float scale;    // of the codes
  float inverse;  // code = nearest(value * inverse), ties to even
};

// `max_bits`: the largest of the bits of the row's magnitudes, which are in the order of the
// magnitudes with NaN above infinity. A row that is not finite becomes NaN as a whole, and one
// below 2^-100 zero, whose inverse would overflow.
KU_HOST_DEVICE CodeScale CodeScaleOf(uint32_t max_bits, float max_code) {
  constexpr uint32_t kInfinity = 0x7F800000u, kNaN = 0x7FC00000u, kTiny = (127u - 100u) << 23;
  if (max_bits >= kInfinity) return {float8::OfBits(kNaN), 0.0f};
  if (max_bits < kTiny) return {0.0f, 0.0f};
  const float max = float8::OfBits(max_bits);
  return {max / max_code, max_code / max};
}
constexpr float kMaxInt8 = 127.0f;

// The same with a power of two as scale, so that values of few bits stay exact: the largest
// magnitude becomes at most 32639 = 127 * 256 + 127, which two digits of 8 bits hold, and more than
// half of that.
KU_HOST_DEVICE CodeScale WideScaleOf(uint32_t max_bits) {
  const CodeScale scale = CodeScaleOf(max_bits, 1.0f);
  if (scale.inverse == 0.0f) return scale;
  // 2^14 times the fraction reaches 32639.5 where this carries into the exponent.
  constexpr uint32_t kCarry = 65792, kBits = 14, kBias = 127;
  const uint32_t exponent = (max_bits + kCarry) >> 23;
  return {float8::OfBits((exponent - kBits) << 23),
          float8::OfBits((2 * kBias + kBits - exponent) << 23)};
}

}  // namespace kuiper
