// The micro-kernels of integer weights times integer activations, which integer.cpp calls: a set
// for each instruction set. integer-inl.h implements them over Highway, avx512vnni.cpp in products
// of bytes. kernel.h has the numeric contract.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kuiper/base/dtype.h"

namespace kuiper::cpu {

// Fetches a stretch of memory into L2, a few lines at a time.
struct LineFetcher {
  const uint8_t* at = nullptr;
  int64_t lines = 0;

  void Fetch(int64_t n) {
    if (n > lines) n = lines;
    lines -= n;
    for (; n > 0; --n, at += 64) __builtin_prefetch(at, 0, 2);
  }
};

// Tokens by the columns of a panel, or few tokens by row_block rows of W in place.
struct IntegerArgs {
  const uint8_t* x = nullptr;       // integers of the first token, as `convert` leaves them
  size_t x_stride = 0;              // bytes from token to token
  const float* x_scales = nullptr;  // [tokens][units]
  const int32_t* x_sums = nullptr;  // [tokens][units]: the sum of the unit's integers
  int units = 0;
  const uint8_t* weights = nullptr;  // a panel, or rows, row_stride bytes apart
  size_t row_stride = 0;
  int rows = 0;  // rows that exist: 1 to row_block
  // [units], scale_stride from unit to unit: of the columns, or of row_block rows. FP32 and INT32;
  // of prepacked W in their stored types.
  const void* scales = nullptr;
  const void* zeros = nullptr;  // null: all are default_zero
  DType scale_type = DType::kF32, zero_type = DType::kI32;
  int default_zero = 0;
  int scale_stride = 0;
  int k = 0;
  int unit = 0;                 // columns of a unit; the last one may have fewer
  float* sums = nullptr;        // [tokens][columns]
  size_t sum_stride = 0;        // floats from token to token
  LineFetcher* next = nullptr;  // next_lines with each unit
  int next_lines = 0;
};
using IntegerFn = void (*)(const IntegerArgs& args);

constexpr int kMaxIntegerTokens = 6;  // of a tile
constexpr int kMaxRowTokens = 2;      // with rows in place

// The kernels of one weight format; [0] for int16 activations, [1] for int8 ones.
struct IntegerKernel {
  int columns = 0;    // of a panel; 0: there are no integer kernels
  int row_block = 0;  // rows that are multiplied in place; columns are a multiple
  int max_tokens = 0;
  int panel_bits = 0;         // of a code in a panel
  int element_bytes[2] = {};  // of an integer of x

  // x [k] -> integers, and for each unit their scale and their sum.
  using ConvertFn = void (*)(const float* x, int k, int unit, uint8_t* integers, float* scales,
                             int32_t* sums);
  ConvertFn convert[2] = {};
  ConvertFn convert_for_prepacked[2] = {};
  // `count` <= columns rows of k codes -> a panel. next_lines are fetched with each row_block rows
  // by 64 bytes.
  void (*pack)(const uint8_t* rows, size_t stride, int count, int k, uint8_t* panel,
               LineFetcher* next, int next_lines) = nullptr;
  // `count` <= row_block rows of `units` numbers of `type` each, `stride` bytes apart -> [units]
  // [row_block] as FP32 (INT32 of bytes), to_stride words from unit to unit. FP32 and INT32 only,
  // unless takes_all_types: scales and zeros as files have them.
  void (*transpose)(const uint8_t* from, size_t stride, DType type, int count, int units,
                    uint32_t* to, size_t to_stride) = nullptr;
  bool takes_all_types = false;
  // [m]: m tokens; null where a panel is faster.
  IntegerFn rows[2][kMaxRowTokens + 1] = {};
  IntegerFn tiles[2][kMaxIntegerTokens + 1] = {};
  // The same of prepacked W: [panel][words of four bytes of a row][columns], and scales and zeros
  // [panel][units][columns] of their types.
  IntegerFn prepacked[2][kMaxIntegerTokens + 1] = {};
};

}  // namespace kuiper::cpu
