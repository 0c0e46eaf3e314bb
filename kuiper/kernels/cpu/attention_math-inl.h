// The arithmetic of attention: a register-tiled product of matrices, and softmax over a range of
// columns. Included once per instruction set (hwy/foreach_target.h).
#include <algorithm>
#include <limits>

#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_items.h"
#include "kuiper/kernels/cpu/simd-inl.h"

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
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kVecs = 4;
#else
constexpr int kVecs = 2;
#endif

// --- the product: c[r][n] += sum over k of a[r][k] * b[k][n], k ascending ----------------------

// Rows of a dense matrix; the other kind of `b` is an array of row pointers.
struct StridedRows {
  const float* data;
  int64_t stride;
  HWY_INLINE const float* operator[](int k) const { return data + k * stride; }
};

template <int kR, int kN, class B>
HWY_INLINE void MultiplyTile(const float* a, int64_t a_stride, const B& b, int begin, int end,
                             int64_t col, bool from_zero, float* c, int64_t c_stride) {
  const DF d;
  VF sum[kR][kN];
  for (int r = 0; r < kR; ++r) {
    for (int n = 0; n < kN; ++n) {
      sum[r][n] = from_zero ? hn::Zero(d) : hn::LoadU(d, c + r * c_stride + col + n * kLanes);
    }
  }
  for (int k = begin; k < end; ++k) {
    const auto* row = b[k] + col;
    VF x[kN];
    for (int n = 0; n < kN; ++n) x[n] = LoadF32(d, row + n * kLanes);
    for (int r = 0; r < kR; ++r) {
      const VF y = hn::Set(d, a[r * a_stride + k]);
      for (int n = 0; n < kN; ++n) sum[r][n] = hn::MulAdd(y, x[n], sum[r][n]);
    }
  }
  for (int r = 0; r < kR; ++r) {
    for (int n = 0; n < kN; ++n) hn::StoreU(sum[r][n], d, c + r * c_stride + col + n * kLanes);
  }
}

template <int kR, class B>
HWY_NOINLINE void MultiplyRows(const float* a, int64_t a_stride, const B& b, int begin, int end,
                               int64_t cols, bool from_zero, float* c, int64_t c_stride) {
  int64_t col = 0;
  for (; col + kVecs * kLanes <= cols; col += kVecs * kLanes) {
    MultiplyTile<kR, kVecs>(a, a_stride, b, begin, end, col, from_zero, c, c_stride);
  }
  for (; col < cols; col += kLanes) {
    MultiplyTile<kR, 1>(a, a_stride, b, begin, end, col, from_zero, c, c_stride);
  }
}

// rows in [1, kMicroRows]; cols is rounded up to whole vectors.
template <class B>
HWY_INLINE void Multiply(int rows, const float* a, int64_t a_stride, const B& b, int begin, int end,
                         int64_t cols, bool from_zero, float* c, int64_t c_stride) {
  switch (rows) {
    case 1:
      return MultiplyRows<1>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    case 2:
      return MultiplyRows<2>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    case 3:
      return MultiplyRows<3>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    case 4:
      return MultiplyRows<4>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    case 5:
      return MultiplyRows<5>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    default:
      return MultiplyRows<6>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
  }
}

// --- softmax ----------------------------------------------------------------------------------

// Adds slope * (distance + i) to scores[i] for i in `keys` (ALiBi); columns beside them get
// garbage.
HWY_INLINE void AddAlibi(float* scores, KeyRange keys, float slope, int distance) {
  const DF d;
  const VF factor = hn::Set(d, slope);
  for (int i = keys.begin / 16 * 16; i < keys.end; i += kLanes) {
    const VF x = hn::Iota(d, static_cast<float>(distance + i));
    hn::StoreU(hn::MulAdd(factor, x, hn::LoadU(d, scores + i)), d, scores + i);
  }
}

// Extends the range to whole groups of 16 columns; what was outside becomes -inf.
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

// scores = exp(scores - max), added to the 16 lanes of `sum`: column i to lane i % 16.
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

// Takes the next tile of a row's scores into its running maximum, sum and output.
HWY_INLINE void OnlineSoftmax(float* scores, KeyRange keys, float* max, float* sum, float* acc,
                              int64_t dim) {
  const KeyRange padded = PadScores(scores, keys);
  const float new_max = MaxOfScores(scores, padded, *max);
  if (new_max != *max) {
    const float old_scale = hn::GetLane(ExpF32(DF(), hn::Set(DF(), *max - new_max)));
    Scale(acc, dim, old_scale);
    Scale(sum, 16, old_scale);
    *max = new_max;
  }
  ExpScores(scores, padded, new_max, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
