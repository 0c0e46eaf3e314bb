// The micro-kernels of the linear layer with BF16 activations, with vdpbf16ps. The instruction
// multiplies 32 pairs, twice the FP32 rate on Zen 4 (half the FP32 rate on a Sapphire Rapids:
// dense.cpp chooses). It reads weights and activations without conversion. Expected: one token 0.95
// of the read bandwidth, 512 tokens 0.9 of the peak of vdpbf16ps. The remainder goes to packing W
// (5 %) and to storing sums of lanes (3 %).
#include "kuiper/kernels/cpu/avx512_attributes.h"
#include "kuiper/kernels/cpu/cpu_target.h"
#include "kuiper/kernels/cpu/linear/kernel.h"

// The kernels replace some of Highway's for AVX-512, which a build for one instruction set lacks.
#if KU_HAS_AVX512_ATTRIBUTES && !defined(HWY_COMPILE_ONLY_STATIC)
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kuiper/base/float8.h"

HWY_PUSH_ATTRIBUTES(KU_AVX512BF16_ATTRIBUTES)
namespace kuiper::cpu {
namespace N_AVX3_BF16 {  // NOLINT(readability-identifier-naming): as Highway names its sets

#include "kuiper/kernels/cpu/codes_avx512-inl.h"
#include "kuiper/kernels/cpu/linear/tile-inl.h"
// After tile-inl.h, which they need.
#include "kuiper/kernels/cpu/linear/avx512-inl.h"
#include "kuiper/kernels/cpu/linear/outer-inl.h"
// After outer-inl.h, which they need.
#include "kuiper/kernels/cpu/linear/dense-inl.h"
#include "kuiper/kernels/cpu/linear/quantized-inl.h"

struct Bf16Model {
  using Acc = __m512;
  using Vec = __m512bh;
  static constexpr int kVectorLanes = 16, kRegisters = 32, kAccRegisters = 24, kTileRows = 6;
  static constexpr int kBurstChunks = 1;
  static constexpr int kChunk = 32, kSteps = 1, kChunkBytes = 64, kWeightChunkBytes = 64;
  static constexpr bool kFoldsRegisters = true, kFlushSubnormals = true;
  static constexpr int kWordSteps = 1;
  static constexpr int kBurstFlops = 2 * 32 * kAccRegisters;

  static HWY_INLINE Acc Zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE Acc Splat(float value) { return _mm512_set1_ps(value); }
  static HWY_INLINE Acc LoadAcc(const float* p) { return _mm512_load_ps(p); }
  static HWY_INLINE void StoreAcc(Acc v, float* p) { _mm512_store_ps(p, v); }
  static HWY_INLINE Vec LoadX(const uint8_t* chunk, int, int) {
    return (Vec)_mm512_load_si512(chunk);
  }
  static HWY_INLINE void StoreX(Vec v, uint8_t* chunk, int, int) {
    _mm512_store_si512(chunk, (__m512i)v);
  }
  static HWY_INLINE void LoadWeights(const uint8_t* chunk, int, Vec (&v)[1]) {
    v[0] = (Vec)_mm512_loadu_si512(chunk);
  }
  static HWY_INLINE Vec Broadcast(const uint8_t* word) {
    int32_t pair;
    memcpy(&pair, word, sizeof(pair));
    return (Vec)_mm512_set1_epi32(pair);
  }
  static HWY_INLINE Vec LoadPanel(const uint8_t* words) { return LoadX(words, 0, 0); }
  // Stops the compiler from loading x again for each product.
  static HWY_INLINE Vec KeepInRegister(Vec v) {
    asm("" : "+v"(v));
    return v;
  }
  static HWY_INLINE Acc Multiply(Vec w, Vec x, Acc acc) { return _mm512_dpbf16_ps(acc, w, x); }
  static HWY_INLINE void FusedMultiplyAdd(Vec w, Vec x, Acc& acc) { acc = Multiply(w, x, acc); }
  static HWY_INLINE Acc MultiplyAdd(Acc a, Acc b, Acc acc) { return _mm512_fmadd_ps(a, b, acc); }
  static HWY_INLINE Acc Add(Acc a, Acc b) { return _mm512_add_ps(a, b); }
  static constexpr int kPackRows = 16;
  static HWY_INLINE void StoreLanes(const Vec (&rows)[16], int, uint8_t* to, size_t to_stride) {
    __m512i raw[16];
    KU_UNROLL for (int i = 0; i < 16; ++i) raw[i] = (__m512i)rows[i];
    StoreTransposed(raw, to, to_stride);
  }
  static HWY_INLINE void Convert(const float* x, uint8_t* chunk) {
    StoreX(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x)), chunk, 0, 0);
  }
  template <int MR, int NR>
  static HWY_INLINE void Fold(const Acc (&acc)[MR][NR][1], float* y, size_t stride, bool add) {
    __m512 raw[MR][NR];
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n) raw[m][n] =
        acc[m][n][0];
    FoldAvx512<MR, NR>(raw, y, stride, add);
  }
  static void Burst(int64_t iterations) {
    constexpr int kCount = kAccRegisters;
    volatile float zero = 0.0f;
    const __m512bh x = (__m512bh)_mm512_castps_si512(_mm512_set1_ps(zero));
    __m512 acc[kCount];
    // Different values: equal chains would be merged into one.
    KU_UNROLL for (int i = 0; i < kCount; ++i) acc[i] = _mm512_set1_ps(zero + i);
    for (int64_t n = 0; n < iterations; ++n) {
      KU_UNROLL for (int i = 0; i < kCount; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], x, x);
    }
    KU_UNROLL for (int i = 1; i < kCount; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    zero = _mm512_cvtss_f32(acc[0]);
  }
};

// Adds the products of up to 64 elements from k on, kChunks K slices of Bf16Model.
template <typename T, int MR, int kChunks>
HWY_INLINE void AccumulateCodes(const DotArgs& a, const uint8_t* const* rows, int k,
                                __m512 (&acc)[MR][kPanelRows][1]) {
  constexpr int kChunk = Bf16Model::kChunk, kBytes = Bf16Model::kChunkBytes;
  const __mmask64 there = a.k - k < 2 * kChunk ? (__mmask64{1} << (a.k - k)) - 1 : ~__mmask64{0};
  KU_UNROLL for (int n = 0; n < kPanelRows; ++n) {
    __m512bh w[2];
    Float8ToBf16Pairs<T>(_mm512_maskz_loadu_epi8(there, rows[n] + k), kCodeOrder, w);
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int c = 0; c < kChunks; ++c) {
      const uint8_t* x = a.x + m * a.x_stride + (k / kChunk + c) * kBytes;
      acc[m][n][0] = Bf16Model::Multiply(w[c], Bf16Model::LoadX(x, 0, 0), acc[m][n][0]);
    }
  }
}

// Does what Dots does, for rows of 8-bit floats.
template <typename T, int MR>
HWY_NOINLINE void CodeDots(const DotArgs& a) {
  constexpr int NR = kPanelRows, kStep = 2 * Bf16Model::kChunk;
  for (int j = 0; j < a.count; j += NR) {
    const uint8_t* const* rows = a.rows + j;
    for (int n = 0; a.ahead > 0 && n < NR; ++n) {
      for (int i = 0; i < a.k; i += 64) __builtin_prefetch(rows[a.ahead + n] + i);
    }
    __m512 acc[MR][NR][1];
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n) acc[m][n][0] =
        Bf16Model::Zero();
    for (int k = 0; k < a.k; k += kStep) {
      if (a.next != nullptr) a.next->Fetch(NR);
      if (a.k - k > Bf16Model::kChunk) {
        AccumulateCodes<T, MR, 2>(a, rows, k, acc);
      } else {
        AccumulateCodes<T, MR, 1>(a, rows, k, acc);
      }
    }
    Bf16Model::Fold<MR, NR>(acc, a.sums + j, a.sum_stride, false);
  }
}

template <typename T, int MR>
void SetCodeDots(DotFn (&dots)[kMaxTileRows + 1]) {
  dots[MR] = &CodeDots<T, MR>;
  if constexpr (MR > 1) SetCodeDots<T, MR - 1>(dots);
}
template <typename T>
void AddCodeDots(LinearKernel& kernel) {
  SetCodeDots<T, Bf16Model::kTileRows>(kernel.float8_dots[Float8Index(DTypeOf<T>::value)]);
}

// Returns pairs of BF16 operands, from FP32 ones. FP32 numbers that BF16 can hold have no bits in
// their lower half.
HWY_INLINE __m512bh PairFactors(__m512 odd, __m512 even) {
  return (__m512bh)_mm512_or_si512(_mm512_castps_si512(odd),
                                   _mm512_srli_epi32(_mm512_castps_si512(even), 16));
}

// Codes are handled as in quantized.cpp.
struct E4M3Model : Bf16Model {
  struct ZeroCode {};
  static constexpr int kWeightChunkBytes = 32;
  static HWY_INLINE ZeroCode MakeZero(int32_t) { return {}; }
  static HWY_INLINE __m512 Widen(__m256i sign, __m256i rest) {
    return _mm512_cvtph_ps(_mm256_or_si256(_mm256_and_si256(sign, _mm256_set1_epi16(-0x8000)),
                                           _mm256_and_si256(rest, _mm256_set1_epi16(0x3F80))));
  }
  static HWY_INLINE void LoadCodes(const uint8_t* chunk, int, ZeroCode, Vec (&v)[1]) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunk));
    v[0] = PairFactors(Widen(pairs, _mm256_srli_epi16(pairs, 1)),
                       Widen(_mm256_slli_epi16(pairs, 8), _mm256_slli_epi16(pairs, 7)));
  }
};

void AddKernels(LinearKernelSet& set) {
  LinearKernel& dense = set[WeightFormat::Dense(DType::kBF16)];
  dense = MakeKernel<Bf16Model>();
  dense.rows_one_by_one = true;
  AddCodeDots<Float8E4M3>(dense);
  AddCodeDots<Float8E5M2>(dense);
  LinearKernel& e4m3 = set[{WeightFormat::Kind::kE4M3, DType::kBF16}];
  e4m3 = MakeQuantizedKernel<E4M3Model>(e4m3.widen);
}

}  // namespace N_AVX3_BF16
}  // namespace kuiper::cpu
HWY_POP_ATTRIBUTES

namespace kuiper::cpu {

bool UpgradeToAvx512Bf16(LinearKernelSet& set) {
  if (strcmp(set.name, "AVX3_VNNI") != 0 || !MayUseAvx512Bf16()) return false;
  set.name = "AVX3_BF16";
  N_AVX3_BF16::AddKernels(set);
  return true;
}

}  // namespace kuiper::cpu

#else

namespace kuiper::cpu {
bool UpgradeToAvx512Bf16(LinearKernelSet&) {
  return false;
}
}  // namespace kuiper::cpu

#endif
