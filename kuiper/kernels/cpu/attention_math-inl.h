// The arithmetic of attention: a register-tiled matrix product, and softmax over a range of
// columns. Included once per instruction set (hwy/foreach_target.h).
#include <algorithm>
#include <limits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_items.h"
#include "kuiper/kernels/cpu/attention_pairs.h"
#include "kuiper/kernels/cpu/simd-inl.h"
#include "kuiper/kernels/cpu/simd_products-inl.h"

#if defined(KUIPER_KERNELS_CPU_ATTENTION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KUIPER_KERNELS_CPU_ATTENTION_MATH_INL_H_
#undef KUIPER_KERNELS_CPU_ATTENTION_MATH_INL_H_
#else
#define KUIPER_KERNELS_CPU_ATTENTION_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// Registers per row of the tile: with 32 registers 6 x 4 sums, with 16 registers 6 x 2.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == KU_NEON
constexpr int kVecs = 4;
#else
constexpr int kVecs = 2;
#endif

// --- the product ------------------------------------------------------------------------------

// The two kinds of Product::b: rows of a dense matrix, and rows of the KV cache. Using KV row k
// prefetches KV row k + ahead.
struct StridedRows {
  const float* data;
  int64_t stride;
  HWY_INLINE const float* operator[](int k) const { return data + k * stride; }
  HWY_INLINE void Fetch(int, int64_t) const {}
};
template <class Row>
struct StoredRows {
  const Row* rows;
  int ahead;
  RangePrefetcher* next;  // if not null, its lines are prefetched instead
  HWY_INLINE Row operator[](int k) const { return rows[k]; }
  HWY_INLINE void Fetch(int k, int64_t col) const {
    constexpr int kLine = 64 / static_cast<int>(sizeof(typename Row::Unit));
    if (next != nullptr && col % kLine == 0) next->Fetch(1);
    if (ahead > 0) hwy::Prefetch((rows[k + ahead] + col).data);
  }
};

// c[r][n] += sum over k in [begin, end) of a[r][k] * b[k][n], k ascending.
template <class B>
struct Product {
  const float* a;
  int64_t a_stride;
  const B& b;
  int begin, end;
  int64_t cols;
  float* c;
  int64_t c_stride;
};

// Computes kN registers of each query row, from column `col` on.
template <int kR, int kN, class B>
HWY_INLINE void MultiplyTile(const Product<B>& p, int64_t col) {
  const DF d;
  VF sum[kR][kN];
  for (int r = 0; r < kR; ++r) {
    for (int n = 0; n < kN; ++n) {
      sum[r][n] = hn::LoadU(d, p.c + r * p.c_stride + col + n * kLanes);
    }
  }
  for (int k = p.begin; k < p.end; ++k) {
    const auto row = p.b[k] + col;
    VF x[kN];
    for (int n = 0; n < kN; ++n) {
      x[n] = LoadF32(d, row + n * kLanes);
      p.b.Fetch(k, col + n * kLanes);
    }
    for (int r = 0; r < kR; ++r) {
      const VF y = hn::Set(d, p.a[r * p.a_stride + k]);
      for (int n = 0; n < kN; ++n) sum[r][n] = hn::MulAdd(y, x[n], sum[r][n]);
    }
  }
  for (int r = 0; r < kR; ++r) {
    for (int n = 0; n < kN; ++n) hn::StoreU(sum[r][n], d, p.c + r * p.c_stride + col + n * kLanes);
  }
}

template <int kR, class B>
HWY_NOINLINE void MultiplyRows(const Product<B>& p) {
  int64_t col = 0;
  for (; col + kVecs * kLanes <= p.cols; col += kVecs * kLanes) MultiplyTile<kR, kVecs>(p, col);
  for (; col < p.cols; col += kLanes) MultiplyTile<kR, 1>(p, col);
}

// rows in [1, kMicroRows]; cols is rounded up to whole vectors.
template <class B>
HWY_INLINE void Multiply(int rows, const Product<B>& p) {
  constexpr void (*kByRows[])(const Product<B>&) = {MultiplyRows<1, B>, MultiplyRows<2, B>,
                                                    MultiplyRows<3, B>, MultiplyRows<4, B>,
                                                    MultiplyRows<5, B>, MultiplyRows<6, B>};
  kByRows[rows - 1](p);
}

// --- products of pairs ------------------------------------------------------------------------

#include "kuiper/kernels/cpu/attention_pairs-inl.h"

// Products of pairs with FP32 multiply-adds. Rows rounded to BF16 stay FP32, in place.
struct PairModel {
  using Acc = VF;
  using A = VF;
  using B = VF;
  static constexpr int kLanes = HWY_NAMESPACE::kLanes, kAccRegisters = kMicroRows * kVecs;
  static constexpr int kSteps = 2;
  // More loads at once would need registers that hold sums.
  static constexpr int kLoads = 2;

  // Loads the even columns, then the odd columns: a word of a row holds one of each.
  static HWY_INLINE void BeginSums(const float* c, Acc* sums) {
    hn::LoadInterleaved2(DF(), c, sums[0], sums[1]);
  }
  static HWY_INLINE void EndSums(const Acc* sums, const PairProduct&, int, float* c) {
    hn::StoreInterleaved2(sums[0], sums[1], DF(), c);
  }
  static HWY_INLINE A LoadA(const float* row, int k, int step) {
    return KeepInRegister(hn::Set(DF(), row[2 * k + 1 - step]));
  }
  template <typename T>
  static HWY_INLINE void LoadRows(const T* even, const T* odd, int step, B* x) {
    const T* row = step == 0 ? odd : even;
    x[0] = LoadEven(DF(), row);
    x[1] = LoadOdd(DF(), row);
  }
  static HWY_INLINE B LoadPacked(const uint32_t* p, int step) {
    return LoadOddOrEvenOfPairs(DF(), reinterpret_cast<const uint8_t*>(p), step);
  }
  static HWY_INLINE void StorePacked(const B (&x)[kSteps][2], int n, uint32_t* p) {
    const hn::RebindToUnsigned<DF> d;
    hn::StoreU(hn::Or(hn::BitCast(d, x[0][n]), hn::ShiftRight<16>(hn::BitCast(d, x[1][n]))), d, p);
  }
  static HWY_INLINE Acc MulAdd(A a, B b, Acc acc) {
    FusedMultiplyAdd(DF(), b, a, acc);
    return acc;
  }
  static void Narrow(float* x, int64_t begin, int64_t end) {
    const DF d;
    for (int64_t i = begin; i < end; i += kLanes) {
      hn::StoreU(RoundToBf16(hn::LoadU(d, x + i)), d, x + i);
    }
  }
};

constexpr PairKernel MakePlainPairKernel() {
  using Rows = std::make_integer_sequence<int, kMicroRows>;
  PairKernel kernel = MakePairKernel<PairModel>(Rows());
  kernel.multiply_float8[Float8Index(DType::kF8E4M3)] =
      MultiplyRowsOf<PairModel, Float8E4M3>(Rows());
  kernel.multiply_float8[Float8Index(DType::kF8E5M2)] =
      MultiplyRowsOf<PairModel, Float8E5M2>(Rows());
  return kernel;
}

// --- softmax ----------------------------------------------------------------------------------

// Adds slope * (distance + i) to scores[i] for i in `keys` (ALiBi). Other columns of the same
// groups of 16 get garbage.
HWY_INLINE void AddAlibi(float* scores, KeyRange keys, float slope, int distance) {
  const DF d;
  const VF factor = hn::Set(d, slope);
  for (int i = keys.begin / 16 * 16; i < keys.end; i += kLanes) {
    const VF x = hn::Iota(d, static_cast<float>(distance + i));
    hn::StoreU(hn::MulAdd(factor, x, hn::LoadU(d, scores + i)), d, scores + i);
  }
}

// scores[i] *= factors[i] * factor for i in `keys`. Other columns of the same groups of 16 get
// garbage.
HWY_INLINE void ScaleScores(float* scores, KeyRange keys, const float* factors, float factor) {
  const DF d;
  const VF of_all = hn::Set(d, factor);
  for (int i = keys.begin / 16 * 16; i < keys.end; i += kLanes) {
    const VF f = hn::Mul(hn::LoadU(d, factors + i), of_all);
    hn::StoreU(hn::Mul(hn::LoadU(d, scores + i), f), d, scores + i);
  }
}

// Extends the range to whole groups of 16 columns and sets the added scores to -inf.
HWY_INLINE KeyRange PadScores(float* scores, KeyRange keys) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const KeyRange padded{keys.begin / 16 * 16, static_cast<int>(RoundUp(keys.end, 16))};
  std::fill(scores + padded.begin, scores + keys.begin, kNone);
  std::fill(scores + keys.end, scores + padded.end, kNone);
  return padded;
}

HWY_INLINE float MaxOfScores(const float* scores, KeyRange padded, float max) {
  const DF d;
  VF m = hn::Set(d, max);
  for (int i = padded.begin; i < padded.end; i += kLanes) m = hn::Max(m, hn::LoadU(d, scores + i));
  return hn::GetLane(hn::MaxOfLanes(d, m));
}

// scores = exp(scores - max). Adds them to the 16 lanes of `sum`: column i to lane i % 16.
HWY_INLINE void ExpScores(float* scores, KeyRange padded, float max, float* sum) {
  const DF d;
  const VF m = hn::Set(d, max);
  for (int r = 0; r < kRegs; ++r) {
    VF total = hn::LoadU(d, sum + r * kLanes);
    for (int i = padded.begin + r * kLanes; i < padded.end; i += 16) {
      const VF p = ExpF32(d, hn::Sub(hn::LoadU(d, scores + i), m));
      hn::StoreU(p, d, scores + i);
      total = hn::Add(total, p);
    }
    hn::StoreU(total, d, sum + r * kLanes);
  }
}

HWY_INLINE void Scale(float* x, int64_t n, float factor) {
  const DF d;
  const VF f = hn::Set(d, factor);
  for (int64_t i = 0; i < n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
}

// Updates a query row's running maximum with the scores of the next tile, and rescales its sum and
// output to the new maximum. Call ExpScores next.
HWY_INLINE void RaiseMax(const float* scores, KeyRange padded, float* max, float* sum, float* acc,
                         int64_t dim) {
  const float new_max = MaxOfScores(scores, padded, *max);
  if (new_max == *max) return;
  const float old_scale = hn::GetLane(ExpF32(DF(), hn::Set(DF(), *max - new_max)));
  Scale(acc, dim, old_scale);
  Scale(sum, 16, old_scale);
  *max = new_max;
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
