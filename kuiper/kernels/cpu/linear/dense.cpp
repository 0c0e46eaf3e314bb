// Micro-kernels of the linear layer for every instruction set of Highway: AVX-512, AVX2, SSE4, NEON
// and scalar code, in one source that foreach_target compiles once per set.
//
// Expected: F32 0.85-0.9 of the FMA peak for many tokens. 16-bit weights run at the FP32 rate: they
// are converted to FP32, for many tokens once per block (with AVX2 in each tile). One token runs at
// memory bandwidth where two conversions per 4 bytes keep up with it.
#include "kuiper/kernels/cpu/cpu_target.h"
#include "kuiper/kernels/cpu/linear/kernel.h"
#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/linear/dense.cpp"
#include <algorithm>
#include <chrono>
#include <cstring>

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
// Needs fp32-inl.h.
#include "kuiper/kernels/cpu/linear/dense-inl.h"

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

#if HWY_TARGET == HWY_AVX2
  // A word has an element of one K slice and one of the next. In panels, however, eight elements of
  // one K slice are adjacent, the order in which the CPU converts them. This was measured with AVX2
  // only.
  static constexpr int kWordSteps = 2;
  static HWY_INLINE Vec LoadPairs(const uint8_t* words, int step) {
    return LoadF16(words + step * kVectorLanes * 2);
  }
  static HWY_INLINE Vec LoadWords(const uint8_t* chunks, int vector) {
    const uint8_t* first = chunks + vector * kVectorLanes * 2;
    const auto low = hn::PromoteTo(U32Tag(), LoadU16(first));
    const auto high = hn::PromoteTo(U32Tag(), LoadU16(first + kWeightChunkBytes));
    return hn::BitCast(F32Tag(), hn::Or(low, hn::ShiftLeft<16>(high)));
  }
  static HWY_INLINE void SplitPairs(uint8_t* words) {
    const hn::Repartition<uint16_t, F32Tag> halves;
    const auto pairs = LoadBytes(halves, words);
    const auto odd = hn::ConcatOdd(halves, pairs, pairs);
    hn::StoreU(hn::ConcatLowerLower(halves, odd, hn::ConcatEven(halves, pairs, pairs)), halves,
               reinterpret_cast<uint16_t*>(words));
  }
#endif
};

// Rows of T, which BF16 holds exactly, times BF16 activations.
template <typename T>
struct StoredModel : PairModel {
  static constexpr int kWeightChunkBytes = kChunk * static_cast<int>(sizeof(T));
  static constexpr bool kFlushSubnormals = true;
  static HWY_INLINE void LoadWeights(const uint8_t* chunk, int vector, Vec (&v)[2]) {
    const T* p = reinterpret_cast<const T*>(chunk) + vector * kVectorLanes * 2;
    v[0] = LoadOdd(F32Tag(), p);
    v[1] = LoadEven(F32Tag(), p);
  }
  static HWY_INLINE void Convert(const float* x, uint8_t* chunk) { ConvertPairs<true>(x, chunk); }

  static HWY_INLINE void BroadcastPair(const uint8_t* word, Vec (&v)[2]) {
    uint32_t pair;
    memcpy(&pair, word, sizeof(pair));
    KU_UNROLL for (int s = 0; s < 2; ++s) v[s] =
        KeepInRegister(OddOrEvenOfPairs(F32Tag(), hn::Set(U32Tag(), pair), s));
  }

#if HWY_TARGET == HWY_AVX2
  // Words are pairs of two-byte elements. This was measured with AVX2 only.
  static constexpr int kWordSteps = sizeof(T) == 2 ? 2 : 1;
  static HWY_INLINE Vec LoadPairs(const uint8_t* words, int step) {
    return LoadOddOrEvenOfPairs(F32Tag(), words, step);
  }
  static HWY_INLINE Vec LoadWords(const uint8_t* chunk, int vector) {
    return LoadF32(chunk + vector * kVectorLanes * sizeof(float));
  }
#endif
};

template <typename T>
void SetCodeDots(LinearKernel& kernel) {
  SetDots<StoredModel<T>, PairModel::kTileRows>(kernel.float8_dots[Float8Index(DTypeOf<T>::value)]);
}

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
  // Reduced by hand: GCC's reduction of AVX-512 registers adds signed integers, which overflow.
  alignas(64) uint32_t lanes[Fp32Model::kVectorLanes];
  hn::Store(acc[0], du, lanes);
  uint32_t sum = 0;
  for (const uint32_t lane : lanes) sum += lane;
  return static_cast<float>(sum);
}

LinearKernelSet MakeSet() {
  LinearKernelSet set;
  set.name = TargetName(HWY_TARGET);
  set.read = &Read;
  set[WeightFormat::Dense(DType::kF32)] = MakeKernel<F32Model>();
  set[WeightFormat::Dense(DType::kF16)] = MakeKernel<F16Model>();
  LinearKernel& bf16 = set[WeightFormat::Dense(DType::kBF16)];
  bf16 = MakeKernel<StoredModel<BFloat16>>();
  SetCodeDots<Float8E4M3>(bf16);
  SetCodeDots<Float8E5M2>(bf16);
  return set;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kuiper/kernels/cpu/target_switch.h"

namespace kuiper::cpu {
namespace {

LinearKernelSet DenseSetFor(int64_t target){KU_RETURN_FOR_TARGET(target, MakeSet())}

LinearKernelSet MakeSetFor(int64_t target) {
  LinearKernelSet set = DenseSetFor(target);
  AddQuantizedKernels(target, set);
  return set;
}

// True if `a` multiplies BF16 faster than `b`: some CPUs have vdpbf16ps at half the rate of plain
// multiply-adds. Both give the same bits, so a time measurement may decide. The best of several
// bursts of microseconds is not affected by other load on the machine.
bool IsFaster(const LinearKernelSet& a, const LinearKernelSet& b) {
  constexpr int kBursts = 8, kIterations = 1000;
  double best[2] = {};  // flops per nanosecond
  for (int i = 0; i < 2 * kBursts; ++i) {
    const LinearKernel& kernel = (i % 2 == 0 ? a : b)[WeightFormat::Dense(DType::kBF16)];
    const auto begin = std::chrono::steady_clock::now();
    kernel.burst(kIterations);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    best[i % 2] = std::max(best[i % 2], kernel.flops_per_burst_iteration / time.count());
  }
  return best[0] > best[1];
}

}  // namespace

const std::vector<LinearKernelSet>& LinearKernelSets() {
  static const std::vector<LinearKernelSet> sets = [] {
    FreezeTargets();
    std::vector<LinearKernelSet> found;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      LinearKernelSet set = MakeSetFor(target);
      const LinearKernelSet plain = set;
      const bool has_vnni = UpgradeToAvx512Vnni(set);
      LinearKernelSet upgraded = set;
      const bool can = UpgradeToAvx512Bf16(upgraded);
      const bool pays = can && (MustUseAvx512Bf16() || IsFaster(upgraded, set));
      if (pays) found.push_back(upgraded);
      found.push_back(set);
      if (can && !pays) found.push_back(upgraded);
      if (has_vnni) found.push_back(plain);
    }
    return found;
  }();
  return sets;
}

}  // namespace kuiper::cpu
#endif
