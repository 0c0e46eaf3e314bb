// The products of attention over a cache of few significant bits (BF16, FP8), in pairs of BF16.
// Queries and softmax weights are rounded to BF16, as the linear layers round their activations. A
// 32-bit word holds two consecutive elements of a sum, the even one in the lower half. There is one
// kernel per instruction set: attention_pairs-inl.h has the register tile, and
// attention_avx512bf16.cpp uses the instruction that multiplies pairs.
//
// Numeric contract, identical for every instruction set: a sum adds its pairs in ascending order,
// in each pair the odd element first, then the even one. Each is added with a fused multiply-add in
// FP32 (with the deviations of linear/kernel.h). Subnormal operands and results count as zero.
#pragma once

#include <cstdint>

#include "kuiper/base/dtype.h"
#include "kuiper/kernels/cpu/linear/kernel.h"

namespace kuiper::cpu {

// c[r][n] += sum over pairs k in [begin, end) of a[r][k] . b[k][n].
struct PairProduct {
  const float* a;    // [rows] rounded by PairKernel::narrow, or words of two int16
  int64_t a_stride;  // floats
  int begin, end;
  int64_t cols;  // a multiple of kPairColumns
  float* c;
  int64_t c_stride;
  const float* factors = nullptr;   // [rows], integers only: each sum is multiplied by this scale
                                    // before it is added to c
  int64_t b_stride = 0;             // multiply_packed: words
  int ahead = 0;                    // multiply_rows: reading row i of b prefetches row i + ahead
  RangePrefetcher* next = nullptr;  // prefetched instead, at least one line per line that is read
};
constexpr int kPairColumns = 32;

// True if products over a cache of these elements use pairs of BF16; the elements are exact in
// BF16.
constexpr bool IsPaired(DType element) {
  return element == DType::kBF16 || element == DType::kF8E4M3 || element == DType::kF8E5M2;
}

struct PairKernel {
  // Rounds x[i] to BF16 in place for i in [begin, end), multiples of 16. The resulting layout of
  // the pairs depends on the instruction set.
  void (*narrow)(float* x, int64_t begin, int64_t end) = nullptr;
  // b[k] = BF16 rows 2k and 2k + 1; `rows` points to the first row of pair 0. num_rows, the rows of
  // a, is at most kMicroRows.
  using RowsFn = void (*)(int num_rows, const PairProduct& p, const uint8_t* const* rows);
  RowsFn multiply_rows = nullptr;
  // [Float8Index]: multiply_rows for FP8 rows; null if converting them to BF16 first is faster.
  RowsFn multiply_float8[kNumFloat8Types] = {};
  // b[k] = the words at pairs + k * p.b_stride, which `pack` made of two rows.
  using PackedFn = void (*)(int num_rows, const PairProduct& p, const uint32_t* pairs);
  PackedFn multiply_packed = nullptr;
  void (*pack)(const BFloat16* even, const BFloat16* odd, int64_t cols, uint32_t* pairs) = nullptr;
};

// Returns the kernel with vdpbf16ps (attention_avx512bf16.cpp), or null if MayUseAvx512Bf16() is
// false.
const PairKernel* Avx512Bf16PairKernel();

}  // namespace kuiper::cpu
