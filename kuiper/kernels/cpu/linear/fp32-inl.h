// FP32 arithmetic of the linear layer's micro-kernels in Highway code: the part of a model M of
// tile-inl.h that all formats share. Included like tile-inl.h, by dense.cpp and quantized.cpp,
// after simd_products-inl.h.

#include "kuiper/kernels/cpu/linear/tile-inl.h"
// Needs tile-inl.h.
#include "kuiper/kernels/cpu/linear/outer-inl.h"
#if HWY_TARGET == HWY_AVX3
#include "kuiper/kernels/cpu/linear/avx512-inl.h"
#endif

namespace hn = hwy::HWY_NAMESPACE;
using F32Tag = hn::CappedTag<float, kSumLanes>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using F32Vec = hn::Vec<F32Tag>;

HWY_INLINE F32Vec LoadF32(const uint8_t* p) {
  return LoadBytes(F32Tag(), p);
}

using U16Tag = hn::Rebind<uint16_t, F32Tag>;
using U16Vec = hn::Vec<U16Tag>;

HWY_INLINE U16Vec LoadU16(const uint8_t* p) {
  return LoadBytes(U16Tag(), p);
}

// Converts FP16 bits to FP32.
HWY_INLINE F32Vec FromF16(U16Vec bits) {
  return hn::PromoteTo(F32Tag(), hn::BitCast(hn::Rebind<hwy::float16_t, F32Tag>(), bits));
}

HWY_INLINE F32Vec LoadF16(const uint8_t* p) {
  return FromF16(LoadU16(p));
}

HWY_INLINE F32Vec LoadBF16(const uint8_t* p) {
  return hn::BitCast(F32Tag(), hn::ShiftLeft<16>(hn::PromoteTo(U32Tag(), LoadU16(p))));
}

// FP32 lanes, multiplied by FP32.
struct Fp32Model {
  using Acc = F32Vec;
  using Vec = F32Vec;
  static constexpr int kVectorLanes = static_cast<int>(hn::MaxLanes(F32Tag()));
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
  static constexpr int kRegisters = 32, kAccRegisters = 24, kTileRows = 6;
#else
  static constexpr int kRegisters = 16, kAccRegisters = 12, kTileRows = 6;
#endif
  static constexpr int kBurstChunks = kVectorLanes == kSumLanes ? 1 : 4;
  static constexpr bool kFlushSubnormals = false;
  static constexpr int kWordSteps = 1;
  static constexpr int kBurstFlops = 2 * kAccRegisters * kVectorLanes;

  static HWY_INLINE Acc Zero() {
    return hn::Zero(F32Tag());
  }
  static HWY_INLINE Acc Splat(float value) {
    return hn::Set(F32Tag(), value);
  }
  static HWY_INLINE Acc LoadAcc(const float* p) {
    return hn::Load(F32Tag(), p);
  }
  static HWY_INLINE void StoreAcc(Acc v, float* p) {
    hn::Store(v, F32Tag(), p);
  }
  static HWY_INLINE Vec LoadX(const uint8_t* chunk, int vector, int step) {
    return hn::Load(
        F32Tag(), reinterpret_cast<const float*>(chunk) + step * kSumLanes + vector * kVectorLanes);
  }
  static HWY_INLINE void StoreX(Vec v, uint8_t* chunk, int vector, int step) {
    hn::Store(v, F32Tag(),
              reinterpret_cast<float*>(chunk) + step * kSumLanes + vector * kVectorLanes);
  }
  static HWY_INLINE Vec Broadcast(const uint8_t* word) {
    float value;
    memcpy(&value, word, sizeof(value));
    return Splat(value);
  }
  static HWY_INLINE Vec LoadPanel(const uint8_t* words) {
    return hn::Load(F32Tag(), reinterpret_cast<const float*>(words));
  }
  static HWY_INLINE Vec KeepInRegister(Vec v) {
    return HWY_NAMESPACE::KeepInRegister(v);
  }
  static HWY_INLINE Acc Multiply(Vec w, Vec x, Acc acc) {
    return hn::MulAdd(w, x, acc);
  }
  static HWY_INLINE void FusedMultiplyAdd(Vec w, Vec x, Acc& acc) {
    HWY_NAMESPACE::FusedMultiplyAdd(F32Tag(), w, x, acc);
  }
  static HWY_INLINE Acc MultiplyAdd(Acc a, Acc b, Acc acc) {
    return hn::MulAdd(a, b, acc);
  }
  static HWY_INLINE Acc Add(Acc a, Acc b) {
    return hn::Add(a, b);
  }
  static void Burst(int64_t iterations) {
    constexpr int kCount = kAccRegisters;
    volatile float half = 0.5f;
    const F32Vec c = hn::Set(F32Tag(), half), one = hn::Add(c, c);
    F32Vec acc[kCount];
    // Different values: equal chains would be merged into one.
    KU_UNROLL for (int i = 0; i < kCount; ++i) acc[i] = hn::Set(F32Tag(), half * (i + 1));
    for (int64_t n = 0; n < iterations; ++n) {
      KU_UNROLL for (int i = 0; i < kCount; ++i) acc[i] = hn::MulAdd(acc[i], c, one);
    }
    KU_UNROLL for (int i = 1; i < kCount; ++i) acc[0] = hn::Add(acc[0], acc[i]);
    half = hn::GetLane(acc[0]);
  }

#if HWY_TARGET == HWY_AVX3
  static constexpr int kPackRows = 16;
  static HWY_INLINE void StoreLanes(const Vec (&rows)[16], int, uint8_t* to, size_t to_stride) {
    __m512i raw[16];
    KU_UNROLL for (int i = 0; i < 16; ++i) raw[i] = _mm512_castps_si512(rows[i].raw);
    StoreTransposed(raw, to, to_stride);
  }
  static constexpr bool kFoldsRegisters = true;
  template <int MR, int NR>
  static HWY_INLINE void Fold(const Acc (&acc)[MR][NR][1], float* y, size_t stride, bool add) {
    __m512 raw[MR][NR];
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n) raw[m][n] =
        acc[m][n][0].raw;
    FoldAvx512<MR, NR>(raw, y, stride, add);
  }
#else
#if HWY_TARGET == HWY_SCALAR
  static constexpr int kPackRows = 1;
  static HWY_INLINE void StoreWords(const Vec (&rows)[1], float* words) {
    StoreAcc(rows[0], words);
  }
#else
  static constexpr int kPackRows = 4;
  static HWY_INLINE void StoreWords(const Vec (&rows)[4], float* words) {
    hn::StoreInterleaved4(rows[0], rows[1], rows[2], rows[3], F32Tag(), words);
  }
#endif
  static HWY_INLINE void StoreLanes(const Vec (&rows)[kPackRows], int vector, uint8_t* to,
                                    size_t to_stride) {
    alignas(64) float words[kPackRows * kVectorLanes];
    StoreWords(rows, words);
    KU_UNROLL for (int i = 0; i < kVectorLanes; ++i) {
      memcpy(to + LanePlace(vector * kVectorLanes + i) * to_stride, words + i * kPackRows,
             kPackRows * sizeof(float));
    }
  }
  static constexpr bool kFoldsRegisters = false;
  template <int MR, int NR>
  static HWY_INLINE void FoldLanes(const float* lanes, float* y, size_t stride, bool add) {
    for (int m = 0; m < MR; ++m, y += stride) {
      float sums[NR];
      FoldRow<NR>(lanes + m * NR * kSumLanes, sums);
      for (int n = 0; n < NR; ++n) y[n] = add ? y[n] + sums[n] : sums[n];
    }
  }

#if HWY_TARGET == HWY_SCALAR
  template <int NR>
  static HWY_INLINE void FoldRow(const float* lanes, float* sums) {
    for (int n = 0; n < NR; ++n, lanes += kSumLanes) {
      float q[8];
      for (int i = 0; i < 8; ++i) q[i] = lanes[i] + lanes[i + 8];
      for (int i = 0; i < 4; ++i) q[i] = q[i] + q[i + 4];
      sums[n] = (q[0] + q[2]) + (q[1] + q[3]);
    }
  }
#else
  using QuarterTag = hn::CappedTag<float, 4>;
  static HWY_INLINE hn::Vec<QuarterTag> Fold16To4(const float* v) {
    const QuarterTag d;
    return hn::Add(hn::Add(hn::Load(d, v), hn::Load(d, v + 8)),
                   hn::Add(hn::Load(d, v + 4), hn::Load(d, v + 12)));
  }
  template <int NR>
  static HWY_INLINE void FoldRow(const float* lanes, float* sums) {
    const QuarterTag d;
    if constexpr (NR == 4) {
      const auto p = Fold16To4(lanes), q = Fold16To4(lanes + kSumLanes);
      const auto r = Fold16To4(lanes + 2 * kSumLanes), s = Fold16To4(lanes + 3 * kSumLanes);
      const auto u = hn::Add(hn::ConcatLowerLower(d, q, p), hn::ConcatUpperUpper(d, q, p));
      const auto v = hn::Add(hn::ConcatLowerLower(d, s, r), hn::ConcatUpperUpper(d, s, r));
      hn::StoreU(hn::Add(hn::ConcatEven(d, v, u), hn::ConcatOdd(d, v, u)), d, sums);
    } else {
      alignas(16) float q[4];
      for (int n = 0; n < NR; ++n) {
        hn::Store(Fold16To4(lanes + n * kSumLanes), d, q);
        sums[n] = (q[0] + q[2]) + (q[1] + q[3]);
      }
    }
  }
#endif
#endif
};

// FP32 lanes that take pairs: a converted K slice of 32 elements holds the 16 odd elements, then
// the 16 even ones.
struct PairModel : Fp32Model {
  static constexpr int kChunk = 32, kSteps = 2, kChunkBytes = 128;
  template <bool kRound>
  static HWY_INLINE void ConvertPairs(const float* x, uint8_t* chunk) {
    for (int r = 0; r < kSumLanes / kVectorLanes; ++r) {
      Vec even, odd;
      hn::LoadInterleaved2(F32Tag(), x + 2 * r * kVectorLanes, even, odd);
      StoreX(kRound ? RoundToBf16(odd) : odd, chunk, r, 0);
      StoreX(kRound ? RoundToBf16(even) : even, chunk, r, 1);
    }
  }
};
