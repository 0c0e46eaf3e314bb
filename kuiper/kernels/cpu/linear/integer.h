// The micro-kernels of integer weights times integer activations, one set per instruction set,
// called by integer.cpp. integer-inl.h implements them over Highway, avx512vnni.cpp with products
// of bytes. kernel.h has the numeric contract.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kuiper/base/dtype.h"

namespace kuiper::cpu {

// Prefetches a range of memory into L2, a few lines at a time.
struct LineFetcher {
  const uint8_t* at = nullptr;
  int64_t lines = 0;

  void Fetch(int64_t n) {
    if (n > lines) n = lines;
    lines -= n;
    for (; n > 0; --n, at += 64) __builtin_prefetch(at, 0, 2);
  }
};

// Arguments of a tile: tokens by the columns of a panel, or few tokens by row_block rows of W in
// place.
struct IntegerArgs {
  const uint8_t* x = nullptr;       // integers of the first token, from `convert`
  size_t x_stride = 0;              // bytes from token to token
  const float* x_scales = nullptr;  // [tokens][units]
  const int32_t* x_sums = nullptr;  // [tokens][units]: sums of the integers
  int units = 0;
  const uint8_t* weights = nullptr;  // a panel, or rows row_stride bytes apart
  size_t row_stride = 0;
  int rows = 0;  // rows that exist: 1 to row_block
  // [units], scale_stride numbers from unit to unit: scales and zero points of the columns, or of
  // row_block rows. FP32 and INT32; prepacked W has its stored types.
  const void* scales = nullptr;
  const void* zeros = nullptr;  // null: all are default_zero
  DType scale_type = DType::kF32, zero_type = DType::kI32;
  int default_zero = 0;
  int scale_stride = 0;
  int k = 0;
  int unit = 0;                 // columns of a quantisation block; the last may have fewer
  float* sums = nullptr;        // [tokens][columns]
  size_t sum_stride = 0;        // floats from token to token
  LineFetcher* next = nullptr;  // next_lines with each quantisation block
  int next_lines = 0;
};
using IntegerFn = void (*)(const IntegerArgs& args);

constexpr int kMaxIntegerTokens = 6;  // tokens of a tile
constexpr int kMaxRowTokens = 2;      // tokens with rows in place

// The kernels of one weight format; [0] for int16 activations, [1] for int8 ones.
struct IntegerKernel {
  int columns = 0;    // columns of a panel; 0: no integer kernels
  int row_block = 0;  // rows multiplied together in place; divides `columns`
  int max_tokens = 0;
  int panel_bits = 0;         // bits of a code in a panel
  int element_bytes[2] = {};  // bytes of an integer of x

  // x [k] -> integers, and for each quantisation block their scale and their sum.
  using ConvertFn = void (*)(const float* x, int k, int unit, uint8_t* integers, float* scales,
                             int32_t* sums);
  ConvertFn convert[2] = {};
  ConvertFn convert_for_prepacked[2] = {};
  // `count` <= columns rows of k codes -> a panel. next_lines lines are prefetched with each
  // row_block rows by 64 bytes.
  void (*pack)(const uint8_t* rows, size_t stride, int count, int k, uint8_t* panel,
               LineFetcher* next, int next_lines) = nullptr;
  // `count` <= row_block rows of `units` numbers of `type`, `stride` bytes apart ->
  // [units][row_block] as FP32 (INT32 for bytes), to_stride words from unit to unit. Takes FP32 and
  // INT32 only, or with takes_all_types all types of scales and zero points in files.
  void (*transpose)(const uint8_t* from, size_t stride, DType type, int count, int units,
                    uint32_t* to, size_t to_stride) = nullptr;
  bool takes_all_types = false;
  // [m]: tiles of m tokens; `rows` is null where a panel is faster.
  IntegerFn rows[2][kMaxRowTokens + 1] = {};
  IntegerFn tiles[2][kMaxIntegerTokens + 1] = {};
  // As `tiles`, for prepacked W: [panel][four-byte words of a row][columns]. Scales and zero points
  // are [panel][units][columns] in their stored types.
  IntegerFn prepacked[2][kMaxIntegerTokens + 1] = {};
};

}  // namespace kuiper::cpu
