// Products that stay in registers where the compiler would otherwise move sums and operands to
// memory. Included once per instruction set (hwy/foreach_target.h).
#include <cstdint>

#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/simd-inl.h"

#if defined(KUIPER_KERNELS_CPU_SIMD_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KUIPER_KERNELS_CPU_SIMD_PRODUCTS_INL_H_
#undef KUIPER_KERNELS_CPU_SIMD_PRODUCTS_INL_H_
#else
#define KUIPER_KERNELS_CPU_SIMD_PRODUCTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// OddOrEvenOfPairs for words in memory.
template <class D>
HWY_INLINE hn::Vec<D> LoadOddOrEvenOfPairs(D d, const uint8_t* words, int step) {
  const hn::RebindToUnsigned<D> d32;
#if HWY_TARGET == HWY_AVX2
  // Loads the words in each step: the compiler must not keep them for the other step, since sums
  // need the registers. Inline assembly prevents that without extra instructions; hiding the
  // address from the compiler would add some.
  const auto& pairs = *reinterpret_cast<const __m256i_u*>(words);
  hn::Vec<hn::RebindToUnsigned<D>> v;
  if (step == 0) {
    asm("vpand %2, %1, %0" : "=x"(v.raw) : "x"(hn::Set(d32, kOddOfPair).raw), "m"(pairs));
    return hn::BitCast(d, v);
  }
  asm("vmovdqu %1, %0" : "=x"(v.raw) : "m"(pairs));
  return OddOrEvenOfPairs(d, v, step);
#else
  return OddOrEvenOfPairs(d, LoadBytes(d32, words), step);
#endif
}

// Keeps an operand of several products in a register.
template <class V>
HWY_INLINE V KeepInRegister(V v) {
#if HWY_TARGET == HWY_AVX3
  // Keeps GCC from loading it again in each multiply-add: 28 loads per 24 instead of 10.
  asm("" : "+v"(v.raw));
#elif HWY_TARGET == HWY_AVX2
  asm("" : "+x"(v.raw));
#endif
  return v;
}

// sum += a * b, fused.
template <class D>
HWY_INLINE void FusedMultiplyAdd(D, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D>& sum) {
#if HWY_TARGET == HWY_AVX2
  // GCC would write the sum of two consecutive steps to an operand's register, and move other sums
  // to memory.
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum.raw) : "x"(a.raw), "x"(b.raw));
#else
  sum = hn::MulAdd(a, b, sum);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
