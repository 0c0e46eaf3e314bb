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

}  // namespace kuiper
