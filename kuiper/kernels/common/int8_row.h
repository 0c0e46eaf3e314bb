// How a row is quantised: value = quantised value * scale. The scale maps the largest magnitude to
// the largest quantised value. Both backends store INT8 rows of the KV cache this way, each row on
// its own: the result depends only on the row's values.
#pragma once

#include <cstdint>

#include "kuiper/base/float8.h"
#include "kuiper/base/host_device.h"

namespace kuiper {

struct CodeScale {
  float scale;    // value = quantised value * scale
  float inverse;  // quantised value = nearest(value * inverse), ties to even
};

// `max_bits`: the largest bit pattern of the row's magnitudes; bit patterns order like magnitudes,
// with NaN above infinity. A row that is not finite becomes NaN as a whole. A row below 2^-100
// becomes zero, because its inverse scale would overflow.
KU_HOST_DEVICE CodeScale CodeScaleOf(uint32_t max_bits, float max_code) {
  constexpr uint32_t kInfinity = 0x7F800000u, kNaN = 0x7FC00000u, kTiny = (127u - 100u) << 23;
  if (max_bits >= kInfinity) return {float8::OfBits(kNaN), 0.0f};
  if (max_bits < kTiny) return {0.0f, 0.0f};
  const float max = float8::OfBits(max_bits);
  return {max / max_code, max_code / max};
}
constexpr float kMaxInt8 = 127.0f;

// Like CodeScaleOf with a power of two as scale, so that values of few bits stay exact. The largest
// magnitude becomes at most 32639 = 127 * 256 + 127, which fits two digits of 8 bits, and more than
// half of that.
KU_HOST_DEVICE CodeScale PowerOfTwoScaleOf(uint32_t max_bits) {
  const CodeScale scale = CodeScaleOf(max_bits, 1.0f);
  if (scale.inverse == 0.0f) return scale;
  // Adding kCarry carries into the exponent if 2^14 times the fraction is at least 32639.5.
  constexpr uint32_t kCarry = 65792, kBits = 14, kBias = 127;
  const uint32_t exponent = (max_bits + kCarry) >> 23;
  return {float8::OfBits((exponent - kBits) << 23),
          float8::OfBits((2 * kBias + kBits - exponent) << 23)};
}

}  // namespace kuiper
