// Micro-kernels of the linear layer for every instruction set of Highway: AVX-512, AVX2, SSE4, NEON
// and scalar code, in one source that foreach_target compiles once per set.
// Expected: F32 0.85-0.9 of the FMA peak for many rows. 16-bit weights are widened to FP32, for
// many rows once per block, so they run at the FP32 rate; one row runs at memory bandwidth where
// two conversions per 4 bytes keep up with it.
#include "kuiper/kernels/cpu/linear_kernel.h"
#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/linear_hwy.cpp"
#include <cstring>

#include "hwy/foreach_target.h"  // re-includes this file; must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {
namespace {

#include "kuiper/kernels/cpu/linear_tile-inl.h"
#if HWY_TARGET == HWY_AVX3
#include "kuiper/kernels/cpu/linear_fold_avx512-inl.h"
#endif

namespace hn = hwy::HWY_NAMESPACE;
using F32Tag = hn::CappedTag<float, kSumLanes>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using F32Vec = hn::Vec<F32Tag>;

// Loads at any address; Highway's LoadU requires the alignment of an element, of which x86 and NEON
// instructions know nothing.
HWY_INLINE F32Vec LoadF32(const uint8_t* p) {
#if HWY_TARGET == HWY_SCALAR
  float value;
  memcpy(&value, p, sizeof(value));
  return hn::Set(F32Tag(), value);
#else
  return hn::BitCast(F32Tag(), hn::LoadU(hn::Repartition<uint8_t, F32Tag>(), p));
#endif
}

HWY_INLINE F32Vec LoadF16(const uint8_t* p) {
#if HWY_TARGET == HWY_SCALAR
  hwy::float16_t value;
  memcpy(&value, p, sizeof(value));
  return hn::PromoteTo(F32Tag(), hn::Set(hn::Rebind<hwy::float16_t, F32Tag>(), value));
#else
  const hn::Rebind<hwy::float16_t, F32Tag> df16;
  const hn::Repartition<uint8_t, decltype(df16)> du8;
  return hn::PromoteTo(F32Tag(), hn::BitCast(df16, hn::LoadU(du8, p)));
#endif
}

// The part that all formats share: FP32 lanes, multiplied by FP32.
struct Fp32Model {
  using Acc = F32Vec;
  using Vec = F32Vec;
  static constexpr int kVectorLanes = static_cast<int>(hn::MaxLanes(F32Tag()));
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
  static constexpr int kAccRegisters = 24, kTileRows = 6;  // of 32 registers
#else
  static constexpr int kAccRegisters = 12, kTileRows = 3;  // of 16 registers
#endif
  static constexpr bool kFlushSubnormals = false;
  static constexpr int kBurstFlops = 2 * kAccRegisters * kVectorLanes;

  static HWY_INLINE Acc Zero() {
    return hn::Zero(F32Tag());
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
  static HWY_INLINE Vec Pin(Vec v) {
#if HWY_TARGET == HWY_AVX3
    // Keeps GCC from loading x again in each multiply-add: 28 loads per 24 instead of 10.
    asm("" : "+v"(v.raw));
#endif
    return v;
  }
  static HWY_INLINE Acc Multiply(Vec w, Vec x, Acc acc) {
    return hn::MulAdd(w, x, acc);
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
  static constexpr bool kFoldsRegisters = true;
  template <int MR, int NR>
  static HWY_INLINE void Fold(const Acc (&acc)[MR][NR][1], float* y, size_t stride, bool add) {
    __m512 raw[MR][NR];
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n) raw[m][n] =
        acc[m][n][0].raw;
    FoldAvx512<MR, NR>(raw, y, stride, add);
  }
#else
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

struct F32Model : Fp32Model {
  static constexpr int kChunk = 16, kSteps = 1, kChunkBytes = 64, kWeightChunkBytes = 64;
  static HWY_INLINE void LoadWeights(const uint8_t* chunk, int vector, Vec (&v)[1]) {
    v[0] = LoadF32(chunk + vector * kVectorLanes * 4);
  }
  static HWY_INLINE void Convert(const float* x, uint8_t* chunk) { memcpy(chunk, x, 64); }
};

struct F16Model : Fp32Model {
  static constexpr int kChunk = 16, kSteps = 1, kChunkBytes = 64, kWeightChunkBytes = 32;
  static HWY_INLINE void LoadWeights(const uint8_t* chunk, int vector, Vec (&v)[1]) {
    v[0] = LoadF16(chunk + vector * kVectorLanes * 2);
  }
  static HWY_INLINE void Convert(const float* x, uint8_t* chunk) { memcpy(chunk, x, 64); }
};

// A converted chunk holds the 16 odd elements, then the 16 even ones, as FP32.
struct Bf16Model : Fp32Model {
  static constexpr int kChunk = 32, kSteps = 2, kChunkBytes = 128, kWeightChunkBytes = 64;
  static constexpr bool kFlushSubnormals = true;
  static HWY_INLINE void LoadWeights(const uint8_t* chunk, int vector, Vec (&v)[2]) {
    const U32Tag du;
    const auto pairs = hn::BitCast(du, LoadF32(chunk + vector * kVectorLanes * 4));
    v[0] = hn::BitCast(F32Tag(), hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
    v[1] = hn::BitCast(F32Tag(), hn::ShiftLeft<16>(pairs));
  }
  static HWY_INLINE Vec Round(Vec x) {
    const U32Tag du;
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
    const auto high = hn::BitCast(F32Tag(), hn::And(rounded, hn::Set(du, 0xFFFF0000u)));
    return hn::IfThenElse(hn::Eq(x, x), high, x);  // the carry of a NaN could make it infinite
  }
  static HWY_INLINE void Convert(const float* x, uint8_t* chunk) {
    for (int r = 0; r < kSumLanes / kVectorLanes; ++r) {
      Vec even, odd;
      hn::LoadInterleaved2(F32Tag(), x + 2 * r * kVectorLanes, even, odd);
      StoreX(Round(odd), chunk, r, 0);
      StoreX(Round(even), chunk, r, 1);
    }
  }
};

float Read(const uint8_t* data, size_t bytes) {
  const U32Tag du;
  constexpr size_t kVectorBytes = Fp32Model::kVectorLanes * sizeof(float);
  hn::Vec<U32Tag> acc[8];
  KU_UNROLL for (int i = 0; i < 8; ++i) acc[i] = hn::Zero(du);
  for (size_t at = 0; at + 8 * kVectorBytes <= bytes; at += 8 * kVectorBytes) {
    KU_UNROLL for (int i = 0; i < 8; ++i) {
      acc[i] = hn::Add(acc[i], hn::BitCast(du, LoadF32(data + at + i * kVectorBytes)));
    }
  }
  KU_UNROLL for (int i = 1; i < 8; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  // By hand: GCC's reduction of AVX-512 registers adds signed integers, which overflow.
  alignas(64) uint32_t lanes[Fp32Model::kVectorLanes];
  hn::Store(acc[0], du, lanes);
  uint32_t sum = 0;
  for (const uint32_t lane : lanes) sum += lane;
  return static_cast<float>(sum);
}

LinearKernelSet MakeSet() {
  LinearKernelSet set;
  set.name = hwy::TargetName(HWY_TARGET);
  set.read = &Read;
  set[WeightFormat::Kind::kF32] = MakeKernel<F32Model>();
  set[WeightFormat::Kind::kF16] = MakeKernel<F16Model>();
  set[WeightFormat::Kind::kBF16] = MakeKernel<Bf16Model>();
  return set;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {
namespace {

LinearKernelSet MakeSetFor(int64_t target) {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3
    case HWY_AVX3:
      return N_AVX3::MakeSet();
#endif
#if HWY_TARGETS & HWY_AVX2
    case HWY_AVX2:
      return N_AVX2::MakeSet();
#endif
#if HWY_TARGETS & HWY_SSE4
    case HWY_SSE4:
      return N_SSE4::MakeSet();
#endif
#if HWY_TARGETS & HWY_NEON
    case HWY_NEON:
      return N_NEON::MakeSet();
#endif
    default:
      return HWY_STATIC_DISPATCH(MakeSet());
  }
}

}  // namespace

const std::vector<LinearKernelSet>& LinearKernelSets() {
  static const std::vector<LinearKernelSet> sets = [] {
    std::vector<LinearKernelSet> found;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      LinearKernelSet upgraded = MakeSetFor(target);
      if (UpgradeToAvx512Bf16(upgraded)) found.push_back(upgraded);
      found.push_back(MakeSetFor(target));
    }
    return found;
  }();
  return sets;
}

}  // namespace kuiper::cpu
#endif
