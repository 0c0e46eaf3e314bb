// Helpers of the Highway kernels: loads and stores of any float type as FP32, partial vectors,
// exp, and sums in 16 fixed lanes. Included once per instruction set (hwy/foreach_target.h).
//
// Numeric contract: the position of an element in a vector does not affect its result, because
// tails are padded and use the same instructions. Sums use 16 lanes for every register width, so
// their order depends on the length alone.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
// After highway.h.
#include "kuiper/base/float8.h"
#include "kuiper/base/half.h"
#include "kuiper/kernels/common/int8_row.h"
#include "kuiper/ops/kv_format.h"

#if defined(KUIPER_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KUIPER_KERNELS_CPU_SIMD_INL_H_
#undef KUIPER_KERNELS_CPU_SIMD_INL_H_
#else
#define KUIPER_KERNELS_CPU_SIMD_INL_H_
#endif

// 1 if the CPU converts between FP32 and FP16 with instructions that round to nearest even and keep
// subnormals, infinities and NaNs.
#undef KU_SIMD_HAS_F16C
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || (HWY_TARGET == KU_NEON && HWY_ARCH_ARM_A64)
#define KU_SIMD_HAS_F16C 1
#else
#define KU_SIMD_HAS_F16C 0
#endif

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The widest register, of at most 16 floats.
using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int kLanes = hn::MaxLanes(DF());
constexpr int kRegs = 16 / kLanes;  // registers that hold 16 lanes

// --- loads and stores of vectors; pointers need no alignment ----------------------------------

// Loads from any address. Highway's LoadU requires the alignment of an element, which the x86 and
// NEON instructions do not need.
template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const void* p) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, p, sizeof(value));
  return hn::Set(d, value);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), static_cast<const uint8_t*>(p)));
#endif
}

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

// Rounds to nearest even, as ToBFloat16 does; Highway's DemoteTo truncates.
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

// Converts FP16 values, given as bits, to FP32.
template <class D>
HWY_INLINE hn::Vec<D> HalfBitsToFloat(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
#if KU_SIMD_HAS_F16C
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
#else
  const hn::Rebind<uint16_t, D> d16;
  Half half[hn::MaxLanes(D())];
  hn::StoreU(bits, d16, reinterpret_cast<uint16_t*>(half));
  return LoadF32(d, half);
#endif
}

// Converts FP8 values, in the upper bytes of 16-bit lanes whose lower bytes are zero, to bits of
// FP16. E5M2 is the upper half of FP16. The result of E4M3 is kElementScale times too small; NaN
// stays NaN.
template <class D16>
HWY_INLINE hn::Vec<D16> Float8ToHalfBits(D16, hn::Vec<D16> codes, const Float8E5M2*) {
  return codes;
}
template <class D16>
HWY_INLINE hn::Vec<D16> Float8ToHalfBits(D16 d, hn::Vec<D16> codes, const Float8E4M3*) {
  const auto all = hn::Set(d, uint16_t{0x7F00});
  const auto magnitude = hn::And(codes, all);
  const auto nan = hn::VecFromMask(d, hn::Eq(magnitude, all));
  const auto finite = hn::Or(hn::AndNot(all, codes), hn::ShiftRight<1>(magnitude));
  return hn::Or(finite, hn::And(nan, hn::Set(d, uint16_t{0x7C00})));
}

// Loads 8-bit elements of the KV cache; kElementScale is not applied.
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const int8_t* p) {
  const hn::Rebind<int8_t, D> d8;
  const hn::RebindToSigned<D> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p)));
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadFloat8(D d, const T* p) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<uint16_t, D> d16;
  const auto codes = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(p)));
  return HalfBitsToFloat(d, Float8ToHalfBits(d16, hn::ShiftLeft<8>(codes), p));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const Float8E4M3* p) {
  return LoadFloat8(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const Float8E5M2* p) {
  return LoadFloat8(d, p);
}

constexpr uint32_t kOddOfPair = 0xFFFF0000;

// Extracts, from words of two BF16, the elements for a multiply-add step: the odd elements in step
// 0, the even elements in step 1.
template <class D>
HWY_INLINE hn::Vec<D> OddOrEvenOfPairs(D d, hn::Vec<hn::RebindToUnsigned<D>> pairs, int step) {
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(
      d, step == 0 ? hn::And(pairs, hn::Set(d32, kOddOfPair)) : hn::ShiftLeft<16>(pairs));
}

// LoadOdd and LoadEven return the odd and the even elements of 2 * MaxLanes(d) elements at p, whose
// values are exact in BF16.
template <class D>
HWY_INLINE hn::Vec<D> LoadOdd(D d, const BFloat16* p) {
  const hn::RebindToUnsigned<D> d32;
#if HWY_TARGET == HWY_AVX2
  // A mask would occupy the last of 16 registers.
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::ShiftRight<16>(LoadBytes(d32, p))));
#else
  return OddOrEvenOfPairs(d, LoadBytes(d32, p), 0);
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> LoadEven(D d, const BFloat16* p) {
  return OddOrEvenOfPairs(d, LoadBytes(hn::RebindToUnsigned<D>(), p), 1);
}
template <class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> LoadPairs(D, const int8_t* p) {
  return hn::PromoteTo(hn::RebindToSigned<D>(), LoadBytes(hn::Rebind<int16_t, D>(), p));
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadOdd(D d, const T* p) {
  const hn::Rebind<uint16_t, D> d16;
  const auto codes = hn::And(LoadBytes(d16, p), hn::Set(d16, uint16_t{0xFF00}));
  return HalfBitsToFloat(d, Float8ToHalfBits(d16, codes, p));
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadEven(D d, const T* p) {
  const hn::Rebind<uint16_t, D> d16;
  return HalfBitsToFloat(d, Float8ToHalfBits(d16, hn::ShiftLeft<8>(LoadBytes(d16, p)), p));
}

// Rounds as float8::Narrow does.
template <class D>
HWY_INLINE void StoreFloat8(hn::Vec<D> v, D d, float8::Format f, uint8_t* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> d8;
  const int shift = 23 - f.mantissa_bits;
  const uint32_t rebias = static_cast<uint32_t>(127 - f.bias) << 23;
  const auto set = [&](uint32_t x) HWY_ATTR { return hn::Set(du, x); };
  const auto bits = hn::BitCast(du, v);
  const auto a = hn::And(bits, set(0x7FFFFFFFu));
  const auto odd = hn::And(hn::ShiftRightSame(a, shift), set(1));
  const auto rounded = hn::Add(hn::Add(a, odd), set((1u << (shift - 1)) - 1u - rebias));
  const auto anchor = set(static_cast<uint32_t>(151 - f.bias - f.mantissa_bits) << 23);
  const auto shifted = hn::Add(hn::BitCast(d, a), hn::BitCast(d, anchor));
  auto code = hn::ShiftRightSame(rounded, shift);
  code = hn::IfThenElse(hn::Lt(a, set(rebias + (1u << 23))),
                        hn::Sub(hn::BitCast(du, shifted), anchor), code);
  code = hn::IfThenElse(hn::Lt(a, set((f.max_code << shift) + rebias)), code, set(f.max_code));
  code = hn::IfThenElse(hn::Lt(a, set(0x7F800000u)), code, set(f.infinity));
  code = hn::IfThenElse(hn::Gt(a, set(0x7F800000u)), set(f.nan), code);
  const auto sign = hn::And(hn::ShiftRight<24>(bits), set(0x80));
  hn::StoreU(hn::TruncateTo(d8, hn::Or(sign, code)), d8, p);
}
template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> v, D d, Float8E4M3* p) {
  StoreFloat8(v, d, float8::E4M3(), reinterpret_cast<uint8_t*>(p));
}
template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> v, D d, Float8E5M2* p) {
  StoreFloat8(v, d, float8::E5M2(), reinterpret_cast<uint8_t*>(p));
}
// Rounds to the nearest integer. `v` must be in the range of Int, unless its result is not used.
template <class D, typename Int>
HWY_INLINE void StoreNearest(hn::Vec<D> v, D, Int* p) {
  const hn::Rebind<Int, D> d;
  hn::StoreU(hn::DemoteTo(d, hn::NearestInt(v)), d, p);
}
template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> v, D d, int8_t* p) {
  StoreNearest(v, d, p);
}
template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> v, D d, int16_t* p) {
  StoreNearest(v, d, p);
}

// Loads the first `count` < kLanes elements and sets the other lanes to zero.
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

// Loads elements of a row of the KV cache; KvRow::Scale() is not applied.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadF32(D d, KvRow<T> row) {
  return LoadF32(d, row.data);
}
template <typename T>
HWY_INLINE VF LoadPartial(DF d, KvRow<T> row, int count) {
  return LoadPartial(d, row.data, count);
}
// out[i] = f(load) for i in [0, n), one vector at a time. f calls load(p), which loads the current
// elements of a pointer or row p. So full and partial vectors share their arithmetic.
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

// Stores x [n], of any float type, to the row.
template <typename T, typename In>
HWY_INLINE void StoreHead(KvRow<T> row, const In* x, int n) {
  MapElements(row.data, n, [&](auto load) HWY_ATTR { return load(x); });
}

// Returns the bits of the largest magnitude in x [n]; NaN ranks above infinity.
template <typename In>
HWY_INLINE uint32_t MaxMagnitudeBits(const In* x, int n) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  auto max = hn::Zero(du);
  const auto take = [&](VF v) HWY_ATTR {
    max = hn::Max(max, hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FFFFFFFu)));
  };
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) take(LoadF32(d, x + i));
  if (i < n) take(LoadPartial(d, x + i, n - i));
  return hn::GetLane(hn::MaxOfLanes(du, max));
}

// Quantises x [n] to integers and returns their scale; `codes` may overwrite x.
template <typename Int, typename In>
HWY_INLINE float StoreQuantized(const In* x, int n, CodeScale scale, Int* codes) {
  const VF inverse = hn::Set(DF(), scale.inverse);
  MapElements(codes, n, [&](auto load) HWY_ATTR { return hn::Mul(load(x), inverse); });
  return scale.scale;
}

// Does the same with the scale that makes the largest magnitude `max_code`.
template <typename Int, typename In>
HWY_INLINE float StoreQuantized(const In* x, int n, float max_code, Int* codes) {
  return StoreQuantized(x, n, CodeScaleOf(MaxMagnitudeBits(x, n), max_code), codes);
}

// Stores x [n] to the row as INT8, with the row's scale.
template <typename In>
HWY_INLINE void StoreHead(KvRow<int8_t> row, const In* x, int n) {
  *row.scale = StoreQuantized(x, n, kMaxInt8, row.data);
}

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE hn::Vec<hn::Full128<int32_t>> SumOfBlocks([[maybe_unused]] D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
// Returns the sums of all lanes of each of four vectors.
template <class D>
HWY_INLINE hn::Vec<hn::Full128<int32_t>> TotalsOfFour(D d, const hn::Vec<D>* v) {
  const hn::Repartition<int64_t, D> d64;
  hn::Vec<D> half[2];
  for (int n = 0; n < 2; ++n) {
    half[n] = hn::Add(hn::InterleaveLower(d, v[2 * n], v[2 * n + 1]),
                      hn::InterleaveUpper(d, v[2 * n], v[2 * n + 1]));
  }
  const auto a = hn::BitCast(d64, half[0]), b = hn::BitCast(d64, half[1]);
  return SumOfBlocks(d, hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a, b)),
                                hn::BitCast(d, hn::InterleaveUpper(d64, a, b))));
}
#endif

// --- arithmetic -------------------------------------------------------------------------------

// Rounds to BF16: to nearest, ties to even.
HWY_INLINE VF RoundToBf16(VF x) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  const auto high = hn::BitCast(DF(), hn::And(rounded, hn::Set(du, 0xFFFF0000u)));
  return hn::IfThenElse(hn::IsNaN(x), x, high);  // the carry of a NaN could make it infinite
}

// Returns e^x for x <= 88, with relative error below 2e-7; 0 for x below -87, NaN for NaN. Reduces
// x = n ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite 1980). Then evaluates the Taylor polynomial
// of degree 6 of e^r and adds n to the exponent.
HWY_INLINE VF ExpF32(DF d, VF x) {
  const hn::RebindToUnsigned<DF> du;
  const auto set = [&](float c) HWY_ATTR { return hn::Set(d, c); };
  const VF round = set(12582912.0f);  // 1.5 * 2^23: adding it leaves n in the lowest bits
  const VF shifted = hn::MulAdd(x, set(1.44269504f), round);
  const VF n = hn::Sub(shifted, round);
  const VF r = hn::NegMulAdd(n, set(-2.12194440e-4f), hn::NegMulAdd(n, set(0.693359375f), x));
  VF p = hn::MulAdd(r, set(1.0f / 720), set(1.0f / 120));
  p = hn::MulAdd(p, r, set(1.0f / 24));
  p = hn::MulAdd(p, r, set(1.0f / 6));
  p = hn::MulAdd(p, r, set(0.5f));
  p = hn::MulAdd(p, r, set(1.0f));
  p = hn::MulAdd(p, r, set(1.0f));
  const VF y =
      hn::BitCast(d, hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
  // The lower bits of a NaN would change the exponent.
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenZeroElse(hn::Lt(x, set(-87.0f)), y));
}

// Returns the sum of 16 lanes, added in halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
HWY_INLINE float FoldLanes(const float* lanes) {
  float sum[16];
  std::memcpy(sum, lanes, sizeof(sum));
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

// Accumulates x [n] with add(sum, v) in 16 running lanes and returns the sum of the lanes.
// add(sum, 0) must return sum.
template <class F>
HWY_INLINE float SumLanes(const float* x, int n, const F& add) {
  const DF d;
  VF sum[kRegs];
  for (int r = 0; r < kRegs; ++r) sum[r] = hn::Zero(d);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int r = 0; r < kRegs; ++r) sum[r] = add(sum[r], hn::LoadU(d, x + i + r * kLanes));
  }
  if (i < n) {
    float padded[16] = {};
    std::memcpy(padded, x + i, (n - i) * sizeof(float));
    for (int r = 0; r < kRegs; ++r) sum[r] = add(sum[r], hn::LoadU(d, padded + r * kLanes));
  }
  float lanes[16];
  for (int r = 0; r < kRegs; ++r) hn::StoreU(sum[r], d, lanes + r * kLanes);
  return FoldLanes(lanes);
}

HWY_INLINE float SumOf(const float* x, int n) {
  return SumLanes(x, n, [](VF sum, VF v) HWY_ATTR { return hn::Add(sum, v); });
}

HWY_INLINE float SumOfSquares(const float* x, int n) {
  return SumLanes(x, n, [](VF sum, VF v) HWY_ATTR { return hn::MulAdd(v, v, sum); });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
