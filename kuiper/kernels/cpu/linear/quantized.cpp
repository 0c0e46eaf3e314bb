// Micro-kernels of the linear layer for quantised weights, for every instruction set of Highway.
// Expected: codes cost about three instructions per vector of operands, which a single token cannot
// share with others. So one token runs at memory bandwidth if a core dequantises faster than it
// reads (docs/benchmarks.md). With many tokens each weight is dequantised once per block, and
// products run at the FP32 rate.
#include "kuiper/kernels/cpu/linear/kernel.h"
#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/linear/quantized.cpp"
#include <cstring>
#include <type_traits>

#include "hwy/foreach_target.h"  // re-includes this file; must come before highway.h
#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/simd-inl.h"
#include "kuiper/kernels/cpu/simd_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {
namespace {

#include "kuiper/kernels/cpu/linear/fp32-inl.h"
#include "kuiper/kernels/cpu/linear/quantized-inl.h"

using I32Tag = hn::RebindToSigned<F32Tag>;
using I32Vec = hn::Vec<I32Tag>;
HWY_INLINE F32Vec FactorOf(I32Vec code, I32Vec zero) {
  return hn::ConvertTo(F32Tag(), hn::Sub(code, zero));
}

// LoadPairs returns a vector of pairs for the integer kernels: a code and the next one above it, of
// 16 bits each.
struct Int4Codes {
  static constexpr int kWeightChunkBytes = 16, kPairBytes = 1;
  static HWY_INLINE I32Vec LoadPairs(const uint8_t* p) {
    const auto pairs = hn::PromoteTo(I32Tag(), LoadBytes(hn::Rebind<uint8_t, I32Tag>(), p));
    return hn::Or(hn::And(pairs, hn::Set(I32Tag(), 15)),
                  hn::ShiftLeft<16>(hn::ShiftRight<4>(pairs)));
  }
#if HWY_TARGET == HWY_AVX3
  // The operands of all codes: one instruction looks 16 of them up by the low four bits.
  using ZeroCode = F32Vec;
  static HWY_INLINE ZeroCode MakeZero(int32_t zero) {
    return FactorOf(hn::Iota(I32Tag(), 0), hn::Set(I32Tag(), zero));
  }
  static HWY_INLINE F32Vec FactorOfLowBits(I32Vec codes, ZeroCode factors) {
    return F32Vec{_mm512_permutexvar_ps(codes.raw, factors.raw)};
  }
  static HWY_INLINE F32Vec FactorOfCode(I32Vec code, ZeroCode factors) {
    return FactorOfLowBits(code, factors);
  }
#else
  using ZeroCode = I32Vec;
  static HWY_INLINE ZeroCode MakeZero(int32_t zero) {
    return hn::Set(I32Tag(), zero);
  }
  static HWY_INLINE F32Vec FactorOfLowBits(I32Vec codes, ZeroCode zero) {
    return FactorOf(hn::And(codes, hn::Set(I32Tag(), 15)), zero);
  }
  static HWY_INLINE F32Vec FactorOfCode(I32Vec code, ZeroCode zero) {
    return FactorOf(code, zero);
  }
#endif
  static HWY_INLINE void Load(const uint8_t* chunk, int vector, ZeroCode zero, F32Vec (&v)[2]) {
    const hn::Rebind<uint8_t, F32Tag> du8;
    const auto pairs =
        hn::PromoteTo(I32Tag(), hn::LoadU(du8, chunk + vector * Fp32Model::kVectorLanes));
    v[0] = FactorOfCode(hn::ShiftRight<4>(pairs), zero);
    v[1] = FactorOfLowBits(pairs, zero);
  }
};

struct Int8Codes {
  using ZeroCode = I32Vec;
  static constexpr int kWeightChunkBytes = 32, kPairBytes = 2;
  static HWY_INLINE I32Vec LoadPairs(const uint8_t* p) {
    const auto pairs = hn::PromoteTo(I32Tag(), LoadU16(p));
    return hn::Or(hn::And(pairs, hn::Set(I32Tag(), 255)),
                  hn::ShiftLeft<16>(hn::ShiftRight<8>(pairs)));
  }
  static HWY_INLINE ZeroCode MakeZero(int32_t zero) { return hn::Set(I32Tag(), zero); }
  static HWY_INLINE void Load(const uint8_t* chunk, int vector, ZeroCode zero, F32Vec (&v)[2]) {
    const auto pairs =
        hn::PromoteTo(I32Tag(), LoadU16(chunk + vector * 2 * Fp32Model::kVectorLanes));
    v[0] = FactorOf(hn::ShiftRight<8>(pairs), zero);
    v[1] = FactorOf(hn::And(pairs, hn::Set(I32Tag(), 255)), zero);
  }
};

// Needs the codes above.
#include "kuiper/kernels/cpu/linear/integer-inl.h"

// Sign, exponent and fraction of E4M3 are those of the FP16 number with a 256 times smaller value.
struct E4M3Codes {
  struct ZeroCode {};
  static constexpr int kWeightChunkBytes = 32;
  static HWY_INLINE ZeroCode MakeZero(int32_t) { return {}; }
  static HWY_INLINE F32Vec Widen(U16Vec sign, U16Vec rest) {
    const U16Tag du;
    const auto half = hn::Or(hn::And(sign, hn::Set(du, uint16_t{0x8000})),
                             hn::And(rest, hn::Set(du, uint16_t{0x3F80})));
    return FromF16(half);
  }
  static HWY_INLINE void Load(const uint8_t* chunk, int vector, ZeroCode, F32Vec (&v)[2]) {
    const U16Vec pairs = LoadU16(chunk + vector * 2 * Fp32Model::kVectorLanes);
    v[0] = Widen(pairs, hn::ShiftRight<1>(pairs));
    v[1] = Widen(hn::ShiftLeft<8>(pairs), hn::ShiftLeft<7>(pairs));
  }
};

template <class Codes, bool kRoundX>
struct QuantizedModel : PairModel {
  using ZeroCode = typename Codes::ZeroCode;
  static constexpr int kWeightChunkBytes = Codes::kWeightChunkBytes;
  static constexpr bool kFlushSubnormals = kRoundX;
  static HWY_INLINE ZeroCode MakeZero(int32_t zero) { return Codes::MakeZero(zero); }
  static HWY_INLINE void LoadCodes(const uint8_t* chunk, int vector, ZeroCode zero, Vec (&v)[2]) {
    Codes::Load(chunk, vector, zero, v);
  }
  static HWY_INLINE void Convert(const float* x, uint8_t* chunk) {
    ConvertPairs<kRoundX>(x, chunk);
  }
};

// Calls f(p, i) for each vector of the `n` numbers of kBytes at `from`; i is the index of its first
// number. The last vector is read whole if it lies before `end`, so it may include further numbers.
// Otherwise it is copied, because the bytes after `end` may not be mapped.
template <int kBytes, class F>
HWY_INLINE void ForEachVector(const uint8_t* from, const uint8_t* end, int n, const F& f) {
  constexpr int kLanes = Fp32Model::kVectorLanes;
  uint8_t rest[kBytes * kLanes] = {};
  for (int i = 0; i < n; i += kLanes, from += kBytes * kLanes) {
    const bool is_last = end - from < kBytes * kLanes;
    if (is_last) memcpy(rest, from, end - from);
    f(is_last ? rest : from, i);
  }
}

// Converts `n` scales to FP32 and multiplies them by `factor`.
template <DType kType>
HWY_INLINE void WidenScales(const uint8_t* from, const uint8_t* end, int n, float factor,
                            float* to) {
  ForEachVector<DTypeBytes(kType)>(from, end, n, [=](const uint8_t* p, int i) HWY_ATTR {
    F32Vec scales;
    if constexpr (kType == DType::kF32) {
      scales = LoadF32(p);
    } else if constexpr (kType == DType::kF16) {
      scales = LoadF16(p);
    } else {
      scales = LoadBF16(p);
    }
    hn::StoreU(hn::Mul(scales, hn::Set(F32Tag(), factor)), F32Tag(), to + i);
  });
}

HWY_INLINE void WidenZeros(const uint8_t* from, const uint8_t* end, int n, int32_t* to) {
  ForEachVector<1>(from, end, n, [=](const uint8_t* p, int i) HWY_ATTR {
    const hn::Rebind<uint8_t, F32Tag> du8;
    hn::StoreU(hn::PromoteTo(I32Tag(), hn::LoadU(du8, p)), I32Tag(), to + i);
  });
}

// Expands values of groups to values of quantisation blocks in place, from the last one on: each
// block gets its group's value.
template <typename T>
HWY_INLINE void Repeat(int begin, int units, int unit_columns, int group_columns, int groups,
                       T* values) {
  if (groups == 1) {
    const hn::Rebind<T, F32Tag> d;
    const auto all = hn::Set(d, values[0]);
    for (int u = 0; u < units; u += Fp32Model::kVectorLanes) hn::StoreU(all, d, values + u);
    return;
  }
  const int first = begin / group_columns;
  for (int i = units - 1; i >= 0; --i) {
    values[i] = values[(begin + i * unit_columns) / group_columns - first];
  }
}

constexpr int kRowsAhead = 16;

// Prefetches scales or zero points of later rows. One cache line of them lasts for several rows of
// codes, which is too slow a stream for the hardware prefetchers.
HWY_INLINE void FetchRowsAhead(const uint8_t* from, int64_t row_bytes, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + kRowsAhead * row_bytes + i);
}

template <bool kE4M3>
void Widen(const WeightMatrix& w, const UnitRange& range, float* scales, int32_t* zeros) {
  const WeightFormat& f = w.format;
  const int unit = f.unit_columns(), begin = range.begin;
  int units = (range.end - begin + unit - 1) / unit;
  // Only the rare formats need divisions, which take longer than the remainder of a row.
  const int first = begin == 0 ? 0 : begin / f.group_columns;
  int groups = unit == f.group_columns ? units : (range.end - 1) / f.group_columns - first + 1;
  const int64_t row_groups = w.scales.stride[0];
  int rows = range.rows;
  if (groups == row_groups && groups == units && f.group_rows == 1) {  // rows are contiguous
    groups = units = units * rows;
    rows = 1;
  }
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(f.scale_type));
  const float factor = kE4M3 ? 256.0f : 1.0f;
  const uint8_t* const end = static_cast<const uint8_t*>(w.scales.data) + w.scales.bytes();
  const uint8_t* const zeros_end =
      w.zeros.empty() ? nullptr : static_cast<const uint8_t*>(w.zeros.data) + w.zeros.bytes();
  const bool fills_zeros = zeros != nullptr;
  for (int i = 0; i < rows; ++i, scales += units, zeros += fills_zeros ? units : 0) {
    const int row = range.row + i;
    const int scale_row = f.group_rows == 1 ? row : row / f.group_rows;
    const uint8_t* from =
        static_cast<const uint8_t*>(w.scales.data) + (scale_row * row_groups + first) * bytes;
    FetchRowsAhead(from, row_groups * bytes, groups * bytes);
    switch (f.scale_type) {
      case DType::kF16:
        WidenScales<DType::kF16>(from, end, groups, factor, scales);
        break;
      case DType::kBF16:
        WidenScales<DType::kBF16>(from, end, groups, factor, scales);
        break;
      default:
        WidenScales<DType::kF32>(from, end, groups, factor, scales);
    }
    if (fills_zeros && w.zeros.empty()) {
      for (int u = 0; u < units; u += Fp32Model::kVectorLanes) {
        hn::StoreU(hn::Set(I32Tag(), f.default_zero()), I32Tag(), zeros + u);
      }
    } else if (fills_zeros) {
      const uint8_t* at = w.zeros.row<uint8_t>(row) + first;
      FetchRowsAhead(at, row_groups, groups);
      WidenZeros(at, zeros_end, groups, zeros);
    }
    if (groups == units) continue;
    Repeat(begin, units, unit, f.group_columns, groups, scales);
    if (fills_zeros && !w.zeros.empty()) Repeat(begin, units, unit, f.group_columns, groups, zeros);
  }
}

template <class Codes>
void AddIntegerKernels(WeightFormat::Kind kind, LinearKernelSet& set) {
  set[{kind, DType::kF32}] = MakeQuantizedKernel<QuantizedModel<Codes, false>>(&Widen<false>);
  LinearKernel& kernel = set[{kind, DType::kBF16}];
  kernel.widen = &Widen<false>;
  kernel.integer = MakeIntegerKernel<Codes>();
}

void AddAll(LinearKernelSet& set) {
  AddIntegerKernels<Int4Codes>(WeightFormat::Kind::kInt4, set);
  AddIntegerKernels<Int8Codes>(WeightFormat::Kind::kInt8, set);
  constexpr auto kKind = WeightFormat::Kind::kE4M3;
  set[{kKind, DType::kF32}] = MakeQuantizedKernel<QuantizedModel<E4M3Codes, false>>(&Widen<true>);
  set[{kKind, DType::kBF16}] = MakeQuantizedKernel<QuantizedModel<E4M3Codes, true>>(&Widen<true>);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kuiper/kernels/cpu/target_switch.h"

namespace kuiper::cpu {

void AddQuantizedKernels(int64_t target, LinearKernelSet& set) {
  KU_RETURN_FOR_TARGET(target, AddAll(set))
}

}  // namespace kuiper::cpu
#endif
