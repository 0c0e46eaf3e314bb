// Attention kernels for AVX-512: products of BF16 pairs with vdpbf16ps, 32 multiply-adds per
// instruction on unconverted words, and products of integers with vpdpwssd. Expected with
// vdpbf16ps: 0.9 of the instruction's peak at 6 query rows.
#include "kuiper/kernels/cpu/attention_int8.h"
#include "kuiper/kernels/cpu/attention_items.h"
#include "kuiper/kernels/cpu/attention_pairs.h"
#include "kuiper/kernels/cpu/avx512_attributes.h"
#include "kuiper/kernels/cpu/cpu_target.h"

#if KU_HAS_AVX512_ATTRIBUTES
#include <bit>
#include <limits>
#include <type_traits>
#include <utility>

#include "kuiper/base/float8.h"

HWY_PUSH_ATTRIBUTES(KU_AVX512BF16_ATTRIBUTES)
namespace kuiper::cpu {
namespace N_AVX3_BF16 {  // NOLINT(readability-identifier-naming): as Highway names its sets
namespace {

#include "kuiper/kernels/cpu/attention_pairs-inl.h"
// After attention_pairs-inl.h.
#include "kuiper/kernels/cpu/attention_int8-inl.h"
#include "kuiper/kernels/cpu/codes_avx512-inl.h"

// Permutation that interleaves two rows: element i of the first row has index i, element i of the
// second row has index 32 + i.
struct PairOrder {
  alignas(64) uint16_t index[64];
};
constexpr PairOrder MakePairOrder() {
  PairOrder order{};
  for (int i = 0; i < 64; ++i) order.index[i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
  return order;
}
constexpr PairOrder kPairOrder = MakePairOrder();

struct PairModel {
  using Acc = __m512;
  using A = __m512bh;
  using B = __m512bh;
  static constexpr int kLanes = 16, kAccRegisters = 24, kLoads = 8, kSteps = 1;

  static HWY_INLINE void BeginSums(const float* c, Acc* sums) {
    for (int n = 0; n < 2; ++n) sums[n] = _mm512_loadu_ps(c + n * kLanes);
  }
  static HWY_INLINE void EndSums(const Acc* sums, const PairProduct&, int, float* c) {
    for (int n = 0; n < 2; ++n) _mm512_storeu_ps(c + n * kLanes, sums[n]);
  }
  // Pair i of a row that was rounded to BF16 is its word i.
  static HWY_INLINE A LoadA(const float* row, int k, int) {
    __m512 pair = _mm512_set1_ps(row[k]);
    asm("" : "+v"(pair));  // keeps GCC from loading it again in each multiply-add
    return (A)_mm512_castps_si512(pair);
  }
  static HWY_INLINE void LoadRows(const BFloat16* even, const BFloat16* odd, int, B* x) {
    const __m512i first = _mm512_load_si512(kPairOrder.index),
                  second = _mm512_load_si512(kPairOrder.index + 32);
    const __m512i e = _mm512_loadu_si512(even), o = _mm512_loadu_si512(odd);
    x[0] = (B)_mm512_permutex2var_epi16(e, first, o);
    x[1] = (B)_mm512_permutex2var_epi16(e, second, o);
  }
  static HWY_INLINE B LoadPacked(const uint32_t* p, int) { return (B)_mm512_loadu_si512(p); }
  static HWY_INLINE void StorePacked(const B (&x)[1][2], int n, uint32_t* p) {
    _mm512_storeu_si512(p, (__m512i)x[0][n]);
  }
  static HWY_INLINE Acc MulAdd(A a, B b, Acc acc) { return _mm512_dpbf16_ps(acc, b, a); }
  static void Narrow(float* x, int64_t begin, int64_t end) {
    auto* pairs = reinterpret_cast<char*>(x);
    for (int64_t i = begin; i < end; i += 16) {
      const __m256bh words = _mm512_cvtneps_pbh(_mm512_loadu_ps(x + i));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs + 2 * i), (__m256i)words);
    }
  }
};

// Makes BF16 pairs from FP8 rows.
template <typename T>
struct CodePairModel : PairModel {
  static constexpr int kLoads = 4;  // fewer, since the conversion tables occupy registers
  static HWY_INLINE void LoadRows(const T* even, const T* odd, int, B* x) {
    const __m256i e = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(even)),
                  o = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(odd));
    Float8ToBf16Pairs<T>(_mm512_inserti64x4(_mm512_castsi256_si512(e), o, 1), kHalvesOrder, x);
  }
};

template <typename T, class Rows>
constexpr void SetCodes(PairKernel& kernel, Rows rows) {
  kernel.multiply_float8[Float8Index(DTypeOf<T>::value)] =
      MultiplyRowsOf<CodePairModel<T>, T>(rows);
}

constexpr PairKernel MakeKernel() {
  constexpr std::make_integer_sequence<int, kMicroRows> kRows{};
  PairKernel kernel = MakePairKernel<PairModel>(kRows);
  SetCodes<Float8E4M3>(kernel, kRows);
  SetCodes<Float8E5M2>(kernel, kRows);
  return kernel;
}
constexpr PairKernel kPairKernel = MakeKernel();

// Permutation that makes pairs from 32 INT8 elements of one row and 32 of another: each element
// becomes the upper byte of its 16-bit word.
constexpr ByteOrder MakeUpperOrder() {
  ByteOrder order{};
  for (int i = 0; i < 128; ++i) {
    order.index[i / 64][i % 64] = static_cast<uint8_t>(i / 4 + i / 2 % 2 * 32);
  }
  return order;
}
constexpr ByteOrder kUpperOrder = MakeUpperOrder();

struct Int8Model {
  // Not __m512i, a vector of 64-bit integers: GCC keeps a copy of an array of those in memory.
  using Acc = int32_t __attribute__((vector_size(64)));
  using A = __m512i;
  using B = __m512i;
  using Factors = __m512i;
  static constexpr int kLanes = 16, kAccRegisters = 24, kLoads = 4, kSteps = 1;
  static constexpr int kCodes = 32, kDotRows = 6;

  static HWY_INLINE Acc ZeroSum() { return Acc{}; }
  static HWY_INLINE void BeginSums(const float*, Acc* sums) { sums[0] = sums[1] = ZeroSum(); }
  static HWY_INLINE void EndSums(const Acc* sums, const PairProduct& p, int r, float* c) {
    const __m512 factor = _mm512_set1_ps(p.factors[r]);
    for (int n = 0; n < 2; ++n, c += kLanes) {
      const __m512 sum = _mm512_cvtepi32_ps((__m512i)sums[n]);
      _mm512_storeu_ps(c, _mm512_fmadd_ps(sum, factor, _mm512_loadu_ps(c)));
    }
  }
  static HWY_INLINE A LoadA(const float* row, int k, int step) {
    return (A)PairModel::LoadA(row, k, step);
  }
  static HWY_INLINE void LoadRows(const int8_t* even, const int8_t* odd, int, B* x) {
    const __m256i e = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(even)),
                  o = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(odd));
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(e), o, 1);
    for (int n = 0; n < 2; ++n) {
      const __m512i order = _mm512_load_si512(kUpperOrder.index[n]);
      x[n] = _mm512_srai_epi16(_mm512_permutexvar_epi8(order, both), 8);
    }
  }
  static HWY_INLINE B LoadPacked(const uint32_t* p, int) { return _mm512_loadu_si512(p); }
  static HWY_INLINE void StorePacked(const B (&x)[1][2], int n, uint32_t* p) {
    _mm512_storeu_si512(p, x[0][n]);
  }
  static HWY_INLINE Acc MulAdd(A a, B b, Acc acc) {
    return (Acc)_mm512_dpwssd_epi32((__m512i)acc, a, b);
  }
  static HWY_INLINE Factors LoadCodes(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static HWY_INLINE Factors LoadQuery(const int16_t* p) { return _mm512_loadu_si512(p); }
  static HWY_INLINE Acc Dot(Factors codes, Factors query, Acc acc) {
    return MulAdd(codes, query, acc);
  }
  static HWY_INLINE void StoreTotals(const Acc (&acc)[kPanelRows], float* totals) {
    __m512i half[2];
    for (int n = 0; n < 2; ++n) {
      const auto a = (__m512i)acc[2 * n], b = (__m512i)acc[2 * n + 1];
      half[n] = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    const __m512i blocks = _mm512_add_epi32(_mm512_unpacklo_epi64(half[0], half[1]),
                                            _mm512_unpackhi_epi64(half[0], half[1]));
    const __m256i two =
        _mm256_add_epi32(_mm512_castsi512_si256(blocks), _mm512_extracti64x4_epi64(blocks, 1));
    const __m128i sum =
        _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    _mm_storeu_ps(totals, _mm_cvtepi32_ps(sum));
  }
};
constexpr Int8Kernel kInt8Kernel = MakeInt8Kernel<Int8Model>();

}  // namespace
}  // namespace N_AVX3_BF16
}  // namespace kuiper::cpu
HWY_POP_ATTRIBUTES

namespace kuiper::cpu {

const PairKernel* Avx512Bf16PairKernel() {
  return MayUseAvx512Bf16() ? &N_AVX3_BF16::kPairKernel : nullptr;
}
const Int8Kernel* Avx512Int8Kernel() {
  return MayUseAvx512Bf16() ? &N_AVX3_BF16::kInt8Kernel : nullptr;
}

}  // namespace kuiper::cpu

#else

namespace kuiper::cpu {
const PairKernel* Avx512Bf16PairKernel() {
  return nullptr;
}
const Int8Kernel* Avx512Int8Kernel() {
  return nullptr;
}
}  // namespace kuiper::cpu

#endif
