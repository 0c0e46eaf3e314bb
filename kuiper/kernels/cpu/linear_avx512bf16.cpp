// The BF16 micro-kernel of the linear layer for CPUs with AVX-512-BF16 (Zen 4, Cooper Lake,
// Sapphire Rapids), which Highway 1.0 does not know: vdpbf16ps multiplies 32 pairs per instruction,
// twice the FP32 rate, and reads weights and activations without widening them. Expected: one row
// 0.95 of the read bandwidth, 512 rows 0.85 of the peak of vdpbf16ps; the rest goes to the fold of
// the lanes (5 %), writing y (3 %) and fetching W (2 %).
#include "kuiper/kernels/cpu/linear_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)

#ifndef __clang__
// GCC's own intrinsics use an uninitialised value where the operand is ignored.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "hwy/base.h"

// Attributes of this region only, not compiler flags of this file: inline functions of the standard
// library must not be emitted with instructions that other CPUs lack.
HWY_PUSH_ATTRIBUTES("avx,avx2,fma,f16c,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")
namespace kuiper::cpu {
namespace N_AVX3_BF16 {

#include "kuiper/kernels/cpu/linear_tile-inl.h"
// The fold uses the macros of the tile header.
#include "kuiper/kernels/cpu/linear_fold_avx512-inl.h"

struct Bf16Model {
  using Acc = __m512;
  using Vec = __m512bh;
  static constexpr int kVectorLanes = 16, kAccRegisters = 24, kTileRows = 6;
  static constexpr int kChunk = 32, kSteps = 1, kChunkBytes = 64, kWeightChunkBytes = 64;
  static constexpr bool kFoldsRegisters = true, kFlushSubnormals = true;
  static constexpr int kBurstFlops = 2 * 32 * kAccRegisters;

  static HWY_INLINE Acc Zero() { return _mm512_setzero_ps(); }
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
  static HWY_INLINE Vec Pin(Vec v) { return v; }
  static HWY_INLINE Acc Multiply(Vec w, Vec x, Acc acc) { return _mm512_dpbf16_ps(acc, w, x); }
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

LinearKernel MakeBf16Kernel() {
  return MakeKernel<Bf16Model>();
}

}  // namespace N_AVX3_BF16
}  // namespace kuiper::cpu
HWY_POP_ATTRIBUTES

namespace kuiper::cpu {

bool UpgradeToAvx512Bf16(LinearKernelSet& set) {
  // Highway has checked that the OS saves the registers of AVX3.
  if (strcmp(set.name, "AVX3") != 0 || !__builtin_cpu_supports("avx512bf16")) return false;
  set.name = "AVX3_BF16";
  set[WeightFormat::Kind::kBF16] = N_AVX3_BF16::MakeBf16Kernel();
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
