// The CUDA device functions that kernels use, under their CUDA names: barriers, votes, shuffles,
// atomics, cached loads and bit operations. Included through dialect.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>  // nvcc declares fmaf and others without a header
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/machine.h"
#include "emulator/vector_types.h"

// Default arguments that record the caller's line for reports.
#define KU_SIMT_SITE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()

namespace kuiper::simt {

inline constexpr unsigned kFullMask = 0xffffffffu;

template <typename T>
struct ShuffleArg {
  T in, out;
  int source;
};

template <typename T>
T Shuffle(unsigned mask, T value, int source, const Site& site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "shuffles move up to 8 bytes");
  ShuffleArg<T> arg{value, value, source};
  WarpCollective(
      mask, site, false,
      [](void* const* args) {
        for (int i = 0; i < 32; ++i) {
          auto* to = static_cast<ShuffleArg<T>*>(args[i]);
          if (to == nullptr) continue;
          const auto* from = static_cast<const ShuffleArg<T>*>(args[to->source]);
          // The value of a lane outside the mask is undefined, so return NaN.
          if (from == nullptr) {
            std::memset(static_cast<void*>(&to->out), 0xff, sizeof(T));
          } else {
            to->out = from->in;
          }
        }
      },
      &arg);
  return arg.out;
}

struct BallotArg {
  bool in;
  unsigned out;
};

// Relaxed as on the device, where only fences and barriers order memory.
template <typename T, typename F>
T AtomicUpdate(T* p, F next_of) {
  T old, next;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do {
    next = next_of(old);
  } while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

namespace dialect {

inline void __syncthreads(KU_SIMT_SITE) {
  BlockBarrier({"__syncthreads", file_, line_});
}
inline void __syncwarp(unsigned mask = kFullMask, KU_SIMT_SITE) {
  WarpCollective(mask, {"__syncwarp", file_, line_}, true, nullptr, nullptr);
}
inline void __threadfence() {
  MemoryFence();
}

template <typename T>
T __shfl_sync(unsigned mask, T v, int src, int width = 32, KU_SIMT_SITE) {
  const int lane = static_cast<int>(LaneId());
  const int from = (lane & ~(width - 1)) | (src & (width - 1));
  return Shuffle(mask, v, from, {"__shfl_sync", file_, line_});
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T v, int lane_mask, int width = 32, KU_SIMT_SITE) {
  const int lane = static_cast<int>(LaneId()), from = lane ^ lane_mask;
  return Shuffle(mask, v, from < (lane & ~(width - 1)) + width ? from : lane,
                 {"__shfl_xor_sync", file_, line_});
}
inline unsigned __ballot_sync(unsigned mask, int p, KU_SIMT_SITE) {
  BallotArg arg{p != 0, 0};
  WarpCollective(
      mask, {"__ballot_sync", file_, line_}, false,
      [](void* const* args) {
        unsigned bits = 0;
        for (int i = 0; i < 32; ++i)
          if (args[i] != nullptr && static_cast<BallotArg*>(args[i])->in) bits |= 1u << i;
        for (int i = 0; i < 32; ++i)
          if (args[i] != nullptr) static_cast<BallotArg*>(args[i])->out = bits;
      },
      &arg);
  return arg.out;
}

template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
T __ldg(const T* p) {
  return *p;
}

template <typename T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T old) { return static_cast<T>(old + v); });
}
template <typename T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T old) { return std::max(old, v); });
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __ffs(int x) {
  return x == 0 ? 0 : 1 + std::countr_zero(static_cast<unsigned>(x));
}
// Returns four of the eight bytes of (high, low), selected by the nibbles of `selector`. If a
// nibble's top bit is set, the result byte is eight copies of the selected byte's sign bit.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> 4 * i, byte = bytes >> 8 * (nibble & 7) & 0xff;
    result |= ((nibble & 8) == 0 ? byte : byte >> 7 != 0 ? 0xff : 0) << 8 * i;
  }
  return result;
}
// Rounds to nearest, ties to even. Saturates outside the range of int; NaN gives 0.
inline int __float2int_rn(float x) {
  if (std::isnan(x)) return 0;
  return static_cast<int>(std::clamp(std::nearbyint(double{x}), -0x1p31, 0x1p31 - 1));
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}

}  // namespace dialect
}  // namespace kuiper::simt
