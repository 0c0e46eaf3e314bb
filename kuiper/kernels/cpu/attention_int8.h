// The products of attention over a cache of INT8, in integers: the codes are multiplied as they
// are, by queries and softmax weights of 16 bits, and no sum is rounded. A set for each instruction
// set: attention_int8-inl.h is the tile of scores and attention_pairs-inl.h that of outputs;
// attention_avx512bf16.cpp has the instruction that multiplies and adds pairs.
//
// Numeric contract, identical for every set: a row of scaled queries becomes integers with one
// factor (CodeScaleOf in common/int8_row.h: the largest magnitude becomes 32767, rows below 2^-100
// become 0), its score with a key is the exact sum, rounded once to FP32, times the product of the
// key's scale and that factor. The softmax weights of a row in one tile of keys, times the scales
// of the values, become integers in the same way with a factor of their own; the exact sum over the
// tile, rounded once to FP32, times the factor, is added to the output, with a fused multiply-add
// where there is one. The order of an exact sum does not matter, and a key that a row does not see
// has the weight 0. Subnormal FP32 operands and results count as zero. Heads of more than 512
// elements have queries of 15 bits, so that sums fit 32 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/kernels/cpu/attention_pairs.h"
#include "kuiper/kernels/cpu/linear_kernel.h"

namespace kuiper::cpu {

constexpr int kMaxInteger = 32767;  // of a weight
constexpr int MaxQueryInteger(int head_dim) {
  return head_dim <= 512 ? kMaxInteger : kMaxInteger / 2;
}
static_assert(int64_t{128} * 512 * MaxQueryInteger(512) <= INT32_MAX);

struct Int8Kernel {
  // [m]: the products, in FP32, of m rows of x with rows of codes. x has integers of 16 bits, k is
  // a multiple of kPairColumns.
  DotFn dots[kMaxTileRows + 1] = {};
  int dot_rows = 0;  // most rows of x
  // As those of PairKernel: pairs of integers of 16 bits, a of weights and b of rows of codes.
  PairKernel::RowsFn multiply_rows = nullptr;
  PairKernel::PackedFn multiply_packed = nullptr;
  void (*pack)(const int8_t* even, const int8_t* odd, int64_t cols, uint32_t* pairs) = nullptr;
};

// attention_avx512bf16.cpp: that of vpdpwssd; null where HasAvx512Bf16() is false.
const Int8Kernel* Avx512Int8Kernel();

// Those that this machine can run, of every instruction set.
std::vector<const Int8Kernel*> Int8Kernels();

}  // namespace kuiper::cpu
