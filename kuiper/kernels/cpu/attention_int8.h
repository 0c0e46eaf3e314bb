// The products of attention over an INT8 cache, in integers. The INT8 elements are multiplied
// unconverted by queries and softmax weights of 16 bits, and no sum is rounded. There is one kernel
// per instruction set: attention_int8-inl.h computes the scores, attention_pairs-inl.h the outputs;
// attention_avx512bf16.cpp uses the instruction that multiplies and adds pairs.
//
// Numeric contract, identical for every instruction set:
// - A row of scaled queries is quantised with one scale (CodeScaleOf in common/int8_row.h). The
//   largest magnitude becomes 32767 (see MaxQueryInteger for long heads); rows below 2^-100 become
//   0.
// - A score is the exact integer sum, rounded once to FP32, times the product of the key's scale
//   and the query's scale.
// - The softmax weights of a row in one tile of keys, times the scales of the values, are quantised
//   in the same way, with a scale of their own.
// - The exact sum over the tile, rounded once to FP32, times that scale, is added to the output,
//   with a fused multiply-add where the CPU has one.
// - The order of an exact sum does not matter. A key that a row does not attend to has weight 0.
// - Subnormal FP32 operands and results count as zero.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/kernels/cpu/attention_pairs.h"
#include "kuiper/kernels/cpu/linear/kernel.h"

namespace kuiper::cpu {

constexpr int kMaxInteger = 32767;  // largest quantised softmax weight
// Heads of more than 512 elements have queries of 15 bits, so that sums fit in 32 bits.
constexpr int MaxQueryInteger(int head_dim) {
  return head_dim <= 512 ? kMaxInteger : kMaxInteger / 2;
}
static_assert(int64_t{128} * 512 * MaxQueryInteger(512) <= INT32_MAX);

struct Int8Kernel {
  // [m]: the dot products, as FP32, of m query rows with INT8 rows. x is int16; k is a multiple of
  // kPairColumns.
  DotFn dots[kMaxTileRows + 1] = {};
  int dot_rows = 0;  // maximum number of query rows
  // As in PairKernel, with pairs of int16: `a` are softmax weights, `b` are INT8 rows.
  PairKernel::RowsFn multiply_rows = nullptr;
  PairKernel::PackedFn multiply_packed = nullptr;
  void (*pack)(const int8_t* even, const int8_t* odd, int64_t cols, uint32_t* pairs) = nullptr;
};

// Returns the kernel with vpdpwssd (attention_avx512bf16.cpp), or null if MayUseAvx512Bf16() is
// false.
const Int8Kernel* Avx512Int8Kernel();

// Returns the kernels that this machine can run, one per instruction set.
std::vector<const Int8Kernel*> Int8Kernels();

}  // namespace kuiper::cpu
