// Random weights: value i of a tensor is a function of only (seed, i), the same on every device.
// For host and device.
#pragma once

#include <cstdint>

#include "kuiper/base/host_device.h"

namespace kuiper {

constexpr int kRandomGroup = 8;  // values per 64-bit random number

// Returns number `index` of the SplitMix64 sequence for `seed` (Steele, Lea, Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014).
KU_HOST_DEVICE uint64_t SplitMix64(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Returns value i of the group with the random number `random`. Byte i is its sign and the mantissa
// of a magnitude in [2^-7, 2^-6), about that of trained matrices. 7 bits of mantissa are exact in
// every float type.
KU_HOST_DEVICE float RandomWeight(uint64_t random, int i) {
  const uint32_t byte = static_cast<uint32_t>(random >> (8 * i)) & 0xFFu;
  const float magnitude = 0x1p-7f * (1.0f + static_cast<float>(byte & 0x7Fu) * 0x1p-7f);
  return (byte & 0x80u) != 0 ? -magnitude : magnitude;
}

}  // namespace kuiper
