// The device functions of CUDA, with its names: barriers, votes, shuffles, atomics, cached loads
// and the arithmetic that needs no header on the device. Reached through dialect.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kuiper/kernels/simt/machine.h"
#include "kuiper/kernels/simt/vector_types.h"

// Default arguments that name the caller's line in reports.
#define KU_SIMT_SITE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()

namespace kuiper::simt {

inline constexpr unsigned kFullMask = 0xffffffffu;

struct IntArg {
  int in, out;
};

enum class Reduction { kCount, kAnd, kOr };

template <Reduction kind>
int SyncReduce(int predicate, const Site& site) {
  IntArg arg{predicate != 0, 0};
  BlockCollective(
      site,
      [](void* const* args, int n) {
        int count = 0, present = 0;
        for (int i = 0; i < n; ++i) {
          if (args[i] == nullptr) continue;
          ++present;
          count += static_cast<IntArg*>(args[i])->in;
        }
        const int result = kind == Reduction::kCount ? count
                           : kind == Reduction::kAnd ? count == present
                                                     : count != 0;
        for (int i = 0; i < n; ++i)
          if (args[i] != nullptr) static_cast<IntArg*>(args[i])->out = result;
      },
      &arg);
  return arg.out;
}

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
      [](void* const* args, int) {
        for (int i = 0; i < 32; ++i) {
          auto* to = static_cast<ShuffleArg<T>*>(args[i]);
          if (to == nullptr) continue;
          const auto* from = static_cast<const ShuffleArg<T>*>(args[to->source]);
          // The value of a lane outside the mask is undefined: hand back NaN.
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

inline unsigned Ballot(unsigned mask, bool predicate, const Site& site) {
  IntArg arg{predicate, 0};
  WarpCollective(
      mask, site, false,
      [](void* const* args, int) {
        unsigned bits = 0;
        for (int i = 0; i < 32; ++i)
          if (args[i] != nullptr && static_cast<IntArg*>(args[i])->in != 0) bits |= 1u << i;
        for (int i = 0; i < 32; ++i)
          if (args[i] != nullptr) static_cast<IntArg*>(args[i])->out = static_cast<int>(bits);
      },
      &arg);
  return static_cast<unsigned>(arg.out);
}

// Relaxed, as on the device: only fences and barriers order memory.
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
  BlockCollective({"__syncthreads", file_, line_}, nullptr, nullptr);
}
inline int __syncthreads_count(int p, KU_SIMT_SITE) {
  return SyncReduce<Reduction::kCount>(p, {"__syncthreads_count", file_, line_});
}
inline int __syncthreads_and(int p, KU_SIMT_SITE) {
  return SyncReduce<Reduction::kAnd>(p, {"__syncthreads_and", file_, line_});
}
inline int __syncthreads_or(int p, KU_SIMT_SITE) {
  return SyncReduce<Reduction::kOr>(p, {"__syncthreads_or", file_, line_});
}
inline void __syncwarp(unsigned mask = kFullMask, KU_SIMT_SITE) {
  WarpCollective(mask, {"__syncwarp", file_, line_}, true, nullptr, nullptr);
}
inline void __threadfence() {
  MemoryFence();
}
inline void __threadfence_block() {
  MemoryFence();
}
inline void __threadfence_system() {
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
template <typename T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, KU_SIMT_SITE) {
  const int lane = static_cast<int>(LaneId()), from = lane + static_cast<int>(delta);
  return Shuffle(mask, v, from < (lane & ~(width - 1)) + width ? from : lane,
                 {"__shfl_down_sync", file_, line_});
}
template <typename T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, KU_SIMT_SITE) {
  const int lane = static_cast<int>(LaneId()), from = lane - static_cast<int>(delta);
  return Shuffle(mask, v, from >= (lane & ~(width - 1)) ? from : lane,
                 {"__shfl_up_sync", file_, line_});
}
inline unsigned __ballot_sync(unsigned mask, int p, KU_SIMT_SITE) {
  return Ballot(mask, p != 0, {"__ballot_sync", file_, line_});
}
inline int __any_sync(unsigned mask, int p, KU_SIMT_SITE) {
  return Ballot(mask, p != 0, {"__any_sync", file_, line_}) != 0;
}
inline int __all_sync(unsigned mask, int p, KU_SIMT_SITE) {
  return Ballot(mask, p == 0, {"__all_sync", file_, line_}) == 0;
}

template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
void __stcg(T* p, std::type_identity_t<T> v) {
  *p = v;
}
template <typename T>
void __stcs(T* p, std::type_identity_t<T> v) {
  *p = v;
}

template <typename T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T old) { return static_cast<T>(old + v); });
}
template <typename T>
T atomicSub(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T old) { return static_cast<T>(old - v); });
}
template <typename T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T old) { return std::max(old, v); });
}
template <typename T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T old) { return std::min(old, v); });
}
template <typename T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T old) { return old | v; });
}
template <typename T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T old) { return old & v; });
}
template <typename T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [v](T) { return v; });
}
template <typename T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return AtomicUpdate(p, [expected, v](T old) { return old == expected ? v : old; });
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return AtomicUpdate(p, [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}

inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __saturatef(float x) {
  return x > 0 ? std::fmin(x, 1.0f) : 0.0f;  // NaN becomes 0
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {  // NOLINT(google-runtime-int)
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {                               // NOLINT(google-runtime-int)
  return std::countl_zero(static_cast<unsigned long long>(x));  // NOLINT(google-runtime-int)
}
inline int __ffs(int x) {
  return x == 0 ? 0 : 1 + std::countr_zero(static_cast<unsigned>(x));
}
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= ((x >> i) & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

}  // namespace dialect

inline float FastReciprocalSqrt(float x) {
  return 1.0f / std::sqrt(x);
}

}  // namespace kuiper::simt

// Macros, because libm declares some of these names itself.
#define __expf(x) (::std::exp(static_cast<float>(x)))
#define __exp10f(x) (::std::pow(10.0f, static_cast<float>(x)))
#define __logf(x) (::std::log(static_cast<float>(x)))
#define __log2f(x) (::std::log2(static_cast<float>(x)))
#define __powf(x, y) (::std::pow(static_cast<float>(x), static_cast<float>(y)))
#define __sinf(x) (::std::sin(static_cast<float>(x)))
#define __cosf(x) (::std::cos(static_cast<float>(x)))
#define rsqrtf(x) (::kuiper::simt::FastReciprocalSqrt(x))
