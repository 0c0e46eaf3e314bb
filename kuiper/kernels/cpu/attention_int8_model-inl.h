// The products of integers of attention_int8.h with Highway. Included once per instruction set
// (hwy/foreach_target.h).
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_int8.h"
#include "kuiper/kernels/cpu/attention_math-inl.h"

#if defined(KUIPER_KERNELS_CPU_ATTENTION_INT8_MODEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KUIPER_KERNELS_CPU_ATTENTION_INT8_MODEL_INL_H_
#undef KUIPER_KERNELS_CPU_ATTENTION_INT8_MODEL_INL_H_
#else
#define KUIPER_KERNELS_CPU_ATTENTION_INT8_MODEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

#include "kuiper/kernels/cpu/attention_int8-inl.h"

using DI32 = hn::RebindToSigned<DF>;
using VI32 = hn::Vec<DI32>;

#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// Pairs of int16 in 32-bit words, which pmaddwd multiplies and adds.
struct Int8Factors {
  using DI16 = hn::Repartition<int16_t, DI32>;
  using B = hn::Vec<DI16>;

  static HWY_INLINE B OfWords(VI32 words) { return hn::BitCast(DI16(), words); }
  static HWY_INLINE VI32 Words(B v) { return hn::BitCast(DI32(), v); }
  static HWY_INLINE void LoadRows(const int8_t* even, const int8_t* odd, int, B* x) {
    const hn::Full128<int8_t> d;
    const DI16 d16;
#if HWY_TARGET == HWY_AVX3
    const hn::Rebind<int8_t, DI16> d8;
    for (int n = 0; n < 2; ++n) {
      const auto e = hn::LoadU(d, even + 16 * n), o = hn::LoadU(d, odd + 16 * n);
      const auto low = hn::InterleaveLower(d, e, o), high = hn::InterleaveUpper(d, e, o);
      x[n] = hn::PromoteTo(d16, hn::Combine(d8, high, low));
    }
#elif HWY_TARGET == HWY_AVX2
    const auto e = hn::LoadU(d, even), o = hn::LoadU(d, odd);
    x[0] = hn::PromoteTo(d16, hn::InterleaveLower(d, e, o));
    x[1] = hn::PromoteTo(d16, hn::InterleaveUpper(d, e, o));
#else
    const hn::Full64<int8_t> half;
    const auto e = hn::ZeroExtendVector(d, hn::LoadU(half, even));
    const auto o = hn::ZeroExtendVector(d, hn::LoadU(half, odd));
    const auto pairs = hn::InterleaveLower(d, e, o);
    x[0] = hn::PromoteTo(d16, hn::LowerHalf(pairs));
    x[1] = hn::PromoteTo(d16, hn::UpperHalf(half, pairs));
#endif
  }
  static HWY_INLINE B LoadCodes(const int8_t* p) {
    return hn::PromoteTo(DI16(), hn::LoadU(hn::Rebind<int8_t, DI16>(), p));
  }
  static HWY_INLINE VI32 MulAdd(B a, B b, VI32 acc) {
    VI32 nothing = hn::Zero(DI32());
    return hn::ReorderWidenMulAccumulate(DI32(), a, b, acc, nothing);
  }
};
#else
// The odd and the even elements in separate registers.
struct Int8Factors {
  struct B {
    B() {}  // NOLINT(modernize-use-equals-default): as PairModel::A
    B(VI32 odd_factor, VI32 even_factor) : odd(odd_factor), even(even_factor) {}
    VI32 odd, even;
  };

  static HWY_INLINE B OfWords(VI32 words) {
    return {hn::ShiftRight<16>(words), hn::ShiftRight<16>(hn::ShiftLeft<16>(words))};
  }
  static HWY_INLINE VI32 Words(B v) {
    return hn::Or(hn::ShiftLeft<16>(v.odd), hn::And(v.even, hn::Set(DI32(), 0xFFFF)));
  }
  static HWY_INLINE void LoadRows(const int8_t* even, const int8_t* odd, int, B* x) {
    const hn::Rebind<int8_t, DI32> d8;
    for (int n = 0; n < 2; ++n) {
      x[n] = {hn::PromoteTo(DI32(), hn::LoadU(d8, odd + n * kLanes)),
              hn::PromoteTo(DI32(), hn::LoadU(d8, even + n * kLanes))};
    }
  }
  static HWY_INLINE B LoadCodes(const int8_t* p) {
    const VI32 pairs = LoadPairs(DF(), p);
    return {hn::ShiftRight<8>(pairs), hn::ShiftRight<24>(hn::ShiftLeft<24>(pairs))};
  }
  static HWY_INLINE VI32 MulAdd(B a, B b, VI32 acc) {
    return hn::Add(hn::Mul(a.even, b.even), hn::Add(hn::Mul(a.odd, b.odd), acc));
  }
};
#endif

struct Int8Model : Int8Factors {
  using Acc = VI32;
  using A = B;
  using Factors = B;
  static constexpr int kLanes = HWY_NAMESPACE::kLanes, kAccRegisters = kMicroRows * kVecs;
  static constexpr int kLoads = 2, kSteps = 1, kCodes = 2 * kLanes, kDotRows = kVecs == 4 ? 6 : 2;

  static HWY_INLINE Acc ZeroSum() { return hn::Zero(DI32()); }
  static HWY_INLINE void BeginSums(const float*, Acc* sums) { sums[0] = sums[1] = ZeroSum(); }
  static HWY_INLINE void EndSums(const Acc* sums, const PairProduct& p, int r, float* c) {
    const DF d;
    const VF factor = hn::Set(d, p.factors[r]);
    for (int n = 0; n < 2; ++n, c += kLanes) {
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, sums[n]), factor, hn::LoadU(d, c)), d, c);
    }
  }
  static HWY_INLINE A LoadA(const float* row, int k, int) {
    int32_t word;
    std::memcpy(&word, row + k, sizeof(word));
    return OfWords(hn::Set(DI32(), word));
  }
  static HWY_INLINE B LoadPacked(const uint32_t* p, int) {
    return OfWords(hn::LoadU(DI32(), reinterpret_cast<const int32_t*>(p)));
  }
  static HWY_INLINE void StorePacked(const B (&x)[1][2], int n, uint32_t* p) {
    hn::StoreU(Words(x[0][n]), DI32(), reinterpret_cast<int32_t*>(p));
  }
  static HWY_INLINE B LoadQuery(const int16_t* p) { return OfWords(LoadBytes(DI32(), p)); }
  static HWY_INLINE Acc Dot(B codes, B query, Acc acc) { return MulAdd(codes, query, acc); }
  static HWY_INLINE void StoreTotals(const Acc (&acc)[kPanelRows], float* totals) {
#if HWY_TARGET == HWY_SCALAR
    for (int n = 0; n < kPanelRows; ++n) totals[n] = static_cast<float>(hn::GetLane(acc[n]));
#else
    const hn::Full128<float> d;
    hn::StoreU(hn::ConvertTo(d, TotalsOfFour(DI32(), acc)), d, totals);
#endif
  }
};

// Returns the kernel of this instruction set; with AVX-512 returns `fast` unless it is null.
inline const Int8Kernel* ChooseInt8Kernel([[maybe_unused]] const Int8Kernel* fast) {
  static constexpr Int8Kernel kKernel = MakeInt8Kernel<Int8Model>();
#if HWY_TARGET == HWY_AVX3
  if (fast != nullptr) return fast;
#endif
  return &kKernel;
}

// Transposes INT8 keys for Int8Kernel::multiply_packed: elements 2 i and 2 i + 1 of key j become
// word j of pair i. Pairs are kTile words apart. `count` is a multiple of kPanelRows, `elements` a
// multiple of 8.
inline void PackCodeColumns(const uint8_t* const* keys, int count, int64_t elements,
                            uint32_t* pairs) {
  for (int j = 0; j < count; j += kPanelRows) {
    for (int64_t i = 0; i < elements / 2; i += 4) {
      uint32_t* const to = pairs + i * kTile + j;
#if HWY_TARGET == HWY_SCALAR
      for (int n = 0; n < kPanelRows; ++n) {
        const auto* codes = reinterpret_cast<const int8_t*>(keys[j + n]) + 2 * i;
        for (int p = 0; p < 4; ++p) {
          to[p * kTile + n] = uint32_t{static_cast<uint16_t>(codes[2 * p])} |
                              uint32_t{static_cast<uint16_t>(codes[2 * p + 1])} << 16;
        }
      }
#else
      const hn::Full128<uint32_t> d;
      const hn::Full128<uint64_t> d64;
      hn::Vec<hn::Full128<uint32_t> > rows[kPanelRows];
      for (int n = 0; n < kPanelRows; ++n) {
        const auto* codes = reinterpret_cast<const int8_t*>(keys[j + n]) + 2 * i;
        rows[n] = hn::BitCast(
            d, hn::PromoteTo(hn::Full128<int16_t>(), hn::LoadU(hn::Full64<int8_t>(), codes)));
      }
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, rows[0], rows[1]));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, rows[2], rows[3]));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[0], rows[1]));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[2], rows[3]));
      const auto store = [&](int p, auto v)
                             HWY_ATTR { hn::StoreU(hn::BitCast(d, v), d, to + p * kTile); };
      store(0, hn::InterleaveLower(d64, low01, low23));
      store(1, hn::InterleaveUpper(d64, low01, low23));
      store(2, hn::InterleaveLower(d64, high01, high23));
      store(3, hn::InterleaveUpper(d64, high01, high23));
#endif
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
