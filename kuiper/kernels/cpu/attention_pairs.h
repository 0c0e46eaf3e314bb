// The products of attention over a cache of few significant bits (BF16, FP8), in pairs of BF16:
// queries and softmax weights are rounded to BF16, as the linear layers round their activations,
// and two elements of a sum lie in one 32-bit word, the even one in the lower half. A set for each
// instruction set: attention_pairs-inl.h is the tile, attention_avx512bf16.cpp has the instruction
// that multiplies pairs.
//
// Numeric contract, identical for every set: a sum takes its pairs in ascending order, of a pair
// the odd element and then the even one, each with a fused multiply-add in FP32 (the deviations are
// those of linear_kernel.h); subnormal operands and results count as zero.
#pragma once

#include <cstdint>

#include "kuiper/base/dtype.h"
#include "kuiper/kernels/cpu/linear_kernel.h"

namespace kuiper::cpu {

// c[r][n] += sum over pairs k in [begin, end) of a[r][k] . b[k][n].
struct PairProduct {
  const float* a;    // [rows] as PairKernel::narrow left them, or words of two integers
  int64_t a_stride;  // floats
  int begin, end;
  int64_t cols;  // a multiple of kPairColumns
  float* c;
  int64_t c_stride;
  const float* factors = nullptr;  // [rows], of products of integers: what enters c is a sum of
                                   // all pairs times this
  int64_t b_stride = 0;            // multiply_packed: words
  int ahead = 0;                   // multiply_rows: with row i of b, row i + ahead is fetched
  RangeFetcher* next = nullptr;    // or what this one has, at least as many lines as were read
};
constexpr int kPairColumns = 32;

// Whether the products over a cache of such elements are those of pairs of BF16, in which they are
// exact.
constexpr bool IsPaired(DType element) {
  return element == DType::kBF16 || element == DType::kF8E4M3 || element == DType::kF8E5M2;
}

struct PairKernel {
  // Rounds x[i] to BF16 in place for i in [begin, end), multiples of 16; where the pairs of x lie
  // then is the set's own matter.
  void (*narrow)(float* x, int64_t begin, int64_t end) = nullptr;
  // b[k] = rows 2k and 2k + 1 of BF16; `rows` points to that of pair 0. At most kMicroRows of a.
  using RowsFn = void (*)(int num_rows, const PairProduct& p, const uint8_t* const* rows);
  RowsFn multiply_rows = nullptr;
  // The same of rows of codes, [CodeTypeIndex]; null where it pays to widen them to BF16 first.
  RowsFn multiply_codes[kNumCodeTypes] = {};
  // b[k] = the words at pairs + k * p.b_stride, which pack made of such rows.
  using PackedFn = void (*)(int num_rows, const PairProduct& p, const uint32_t* pairs);
  PackedFn multiply_packed = nullptr;
  void (*pack)(const BFloat16* even, const BFloat16* odd, int64_t cols, uint32_t* pairs) = nullptr;
};

// attention_avx512bf16.cpp: that of vdpbf16ps; null where the machine has none.
const PairKernel* Avx512Bf16PairKernel();

}  // namespace kuiper::cpu
