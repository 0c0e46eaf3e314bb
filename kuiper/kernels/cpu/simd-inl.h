// Helpers of the Highway kernels: loads and stores of any float type as FP32, partial vectors,
// exp, and sums in 16 fixed lanes. Included once per instruction set (hwy/foreach_target.h).
//
// Bits: element-wise code gives every element the same value wherever it lies in a vector, because
// tails are padded and run through the same instructions. Sums use 16 lanes whatever the register
// width, so their order is a function of the length alone.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
// After highway.h.
#include "hwy/contrib/math/math-inl.h"
#include "kuiper/base/half.h"
#include "kuiper/ops/kv_format.h"

#if defined(KUIPER_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KUIPER_KERNELS_CPU_SIMD_INL_H_
#undef KUIPER_KERNELS_CPU_SIMD_INL_H_
#else
#define KUIPER_KERNELS_CPU_SIMD_INL_H_
#endif

// Whether conversions between FP32 and FP16 are instructions that round to nearest even and keep
// subnormals, infinities and NaNs.
#undef KU_SIMD_HAS_F16C
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || \
    (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)
#define KU_SIMD_HAS_F16C 1
#else
#define KU_SIMD_HAS_F16C 0
#endif

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The widest register up to 16 floats.
using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int kLanes = hn::MaxLanes(DF());
constexpr int kRegs = 16 / kLanes;  // registers that hold 16 lanes

// --- loads and stores of vectors; pointers need no alignment ----------------------------------

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const BFloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const Half* p) {
#if KU_SIMD_HAS_F16C
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  Half half[hn::MaxLanes(D())];
  float wide[hn::MaxLanes(D())];
  std::memcpy(half, p, sizeof(half));
  for (size_t i = 0; i < hn::MaxLanes(D()); ++i) wide[i] = ToFloat(half[i]);
  return hn::LoadU(d, wide);
#endif
}

template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> v, D d, float* p) {
  hn::StoreU(v, d, p);
}

// Round to nearest even as ToBFloat16: Highway's DemoteTo truncates.
template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> v, D, BFloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto narrow = hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet, rounded));
  hn::StoreU(narrow, d16, reinterpret_cast<uint16_t*>(p));
}

template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> v, [[maybe_unused]] D d, Half* p) {
#if KU_SIMD_HAS_F16C
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#else
  float wide[hn::MaxLanes(D())];
  Half half[hn::MaxLanes(D())];
  hn::StoreU(v, d, wide);
  for (size_t i = 0; i < hn::MaxLanes(D()); ++i) half[i] = ToHalf(wide[i]);
  std::memcpy(p, half, sizeof(half));
#endif
}

// The first `count` < kLanes elements, the rest zero.
template <typename T>
HWY_INLINE VF LoadPartial(DF d, const T* p, int count) {
  T padded[kLanes] = {};
  std::memcpy(static_cast<void*>(padded), p, count * sizeof(T));
  return LoadF32(d, padded);
}

template <typename T>
HWY_INLINE void StorePartial(VF v, DF d, T* p, int count) {
  T padded[kLanes];
  StoreF32(v, d, padded);
  std::memcpy(static_cast<void*>(p), padded, count * sizeof(T));
}

// Rows of the KV cache in a float format.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadF32(D d, KvRow<T> row) {
  return LoadF32(d, row.data);
}
template <typename T>
HWY_INLINE VF LoadPartial(DF d, KvRow<T> row, int count) {
  return LoadPartial(d, row.data, count);
}
template <typename T>
HWY_INLINE float LoadElement(KvRow<T> row, int i) {
  return ToFloat(row.data[i]);
}

// out[i] = f(load(i)...) for i in [0, n): `load` is called with a function that loads any pointer
// or row at the current place, so that full and partial vectors share their arithmetic.
template <typename T, class F>
HWY_INLINE void MapElements(T* out, int64_t n, F&& f) {
  const DF d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    StoreF32(f([&](auto p) HWY_ATTR { return LoadF32(d, p + i); }), d, out + i);
  }
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    StorePartial(f([&](auto p) HWY_ATTR { return LoadPartial(d, p + i, rest); }), d, out + i, rest);
  }
}

// row = x [n] of any float type.
template <typename T, typename In>
HWY_INLINE void StoreHead(KvRow<T> row, const In* x, int n) {
  MapElements(row.data, n, [&](auto load) HWY_ATTR { return load(x); });
}

// --- arithmetic -------------------------------------------------------------------------------

// e^x for x <= 88; 0 below -104, NaN for NaN.
HWY_INLINE VF ExpF32(DF d, VF x) {
  const VF y = hn::Exp(d, hn::Max(x, hn::Set(d, -105.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// Sum of 16 lanes, halves folded: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
HWY_INLINE float FoldLanes(const float* lanes) {
  float sum[16];
  std::memcpy(sum, lanes, sizeof(sum));
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

// Sum of x[i]^2 with 16 running lanes.
HWY_INLINE float SumOfSquares(const float* x, int n) {
  const DF d;
  VF sum[kRegs];
  for (int r = 0; r < kRegs; ++r) sum[r] = hn::Zero(d);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int r = 0; r < kRegs; ++r) {
      const VF v = hn::LoadU(d, x + i + r * kLanes);
      sum[r] = hn::MulAdd(v, v, sum[r]);
    }
  }
  if (i < n) {
    float padded[16] = {};
    std::memcpy(padded, x + i, (n - i) * sizeof(float));
    for (int r = 0; r < kRegs; ++r) {
      const VF v = hn::LoadU(d, padded + r * kLanes);
      sum[r] = hn::MulAdd(v, v, sum[r]);
    }
  }
  float lanes[16];
  for (int r = 0; r < kRegs; ++r) hn::StoreU(sum[r], d, lanes + r * kLanes);
  return FoldLanes(lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
