// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC11). A draw is a pure function of its key and counter. So the
// token that a request samples depends only on its seed and step, never on the batch. For host and
// device.
#pragma once

#include <cstdint>

#include "kuiper/base/host_device.h"

namespace kuiper {

struct Philox4x32 {
  uint32_t word[4];
};

KU_HOST_DEVICE Philox4x32 Philox4x32_10(Philox4x32 counter, uint32_t key0, uint32_t key1) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * counter.word[0];
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// Returns the random words of ids 4 * block to 4 * block + 3 at `step` of a request.
KU_HOST_DEVICE Philox4x32 SampleBits(uint64_t seed, int32_t step, int32_t block) {
  return Philox4x32_10({{static_cast<uint32_t>(block), static_cast<uint32_t>(step), 0, 0}},
                       static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

// Returns a uniform number in (0, 1) from 32 random bits. Its relative precision is full near 0,
// where the Gumbel noise -log(-log1p(-v)) has its long tail. It is never rounded up to 1.
KU_HOST_DEVICE float OpenUniform(uint32_t bits) {
  const float v = (static_cast<float>(bits) + 0.5f) * 0x1p-32f;
  return v < 1.0f ? v : 0x1.fffffep-1f;
}

}  // namespace kuiper
