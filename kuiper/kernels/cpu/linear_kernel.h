// What linear.cpp (blocking, threads) needs from an instruction set: micro-kernels over tiles of
// rows of x by rows of W. Implemented by linear_hwy.cpp and linear_avx512bf16.cpp, which share
// linear_tile-inl.h. A new instruction set is one more LinearKernelSet.
//
// Numeric contract, identical for every set, tile and call: K is cut into fold blocks of
// kFoldChunks chunks (a chunk is 16 elements, 32 for BF16; the last one is padded with zeros).
// Inside a fold block one accumulator of 16 FP32 lanes starts at zero and takes the chunks left to
// right with fused multiply-adds; BF16 takes the odd, then the even element of pair i in lane i,
// which is what vdpbf16ps does, and its activations are rounded to BF16 (nearest, ties to even).
// The lanes are folded 8+8, 4+4, 2+2, 1+1, and the sums of the blocks are added left to right.
// Everything else (sub-blocks, tiles, packing, threads) moves the same additions around.
//
// Two deviations: without FMA hardware (SSE4, scalar) F32 and F16 products are rounded before they
// are added, and there BF16 products below 2^-126 are flushed before they are added. For BF16
// weights subnormal operands and results count as zero everywhere, as vdpbf16ps defines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kuiper/base/dtype.h"

namespace kuiper {

constexpr int kFoldChunks = 128;  // chunks per fold block
constexpr int kLanes = 16;        // FP32 lanes of one accumulator
constexpr int kPanelRows = 4;     // rows of W per tile
constexpr int kMaxTileRows = 6;   // rows of x per tile, at most

// One tile over one range of K inside a fold block.
struct TileArgs {
  const uint8_t* x = nullptr;  // converted activations, whole chunks
  size_t x_stride = 0;         // bytes from row to row
  const uint8_t* w = nullptr;  // rows of the file, or one packed panel
  size_t w_stride = 0;         // bytes from row to row of the file; unused for panels
  int k = 0;                   // elements
  float* lanes = nullptr;  // [rows of x][rows of W][16]: accumulators between calls, scratch else
  bool first = true;       // accumulators start at zero, not from `lanes`
  bool last = true;        // fold them into `sums`; else they stay in `lanes`
  float* sums = nullptr;   // [rows of x][rows of W]
  size_t sum_stride = 0;   // floats from row to row
  bool add = false;        // sums += fold, not sums = fold
};
using TileFn = void (*)(const TileArgs& args);

// The micro-kernels of one weight type.
struct LinearKernel {
  DType weights = DType::kF32;
  int chunk = 0;        // elements of K
  int chunk_bytes = 0;  // of converted activations and of a row in a packed panel
  int sub_chunks = 0;   // chunks per sub-block: a tile of x of this depth stays in L1
  int tile_rows = 0;    // largest tile of x
  bool widens = false;  // panels hold another type than the file
  bool flush_subnormals = false;

  // x [k] f32 -> ceil(k / chunk) chunks, zero padded.
  void (*convert)(const float* x, int k, uint8_t* chunks) = nullptr;
  // `rows` <= 4 rows of the file, k elements each -> panel [chunk][4][chunk_bytes], zero padded.
  void (*pack)(const uint8_t* w, size_t w_stride, int rows, int k, uint8_t* panel) = nullptr;
  // [m]: m rows of x by 1 or 4 rows of the file, or by a packed panel.
  TileFn file1[kMaxTileRows + 1] = {};
  TileFn file4[kMaxTileRows + 1] = {};
  TileFn panel[kMaxTileRows + 1] = {};

  // Register-only multiply-adds in the form of this kernel: the yardstick of cpu_peaks.h.
  void (*burst)(int64_t iterations) = nullptr;
  int flops_per_burst_iteration = 0;
};

struct LinearKernelSet {
  const char* name = nullptr;
  LinearKernel f32, f16, bf16;
  // Reads everything once; the result only keeps the loads alive.
  float (*read)(const uint8_t* data, size_t bytes) = nullptr;

  const LinearKernel& For(DType weights) const {
    return weights == DType::kF32 ? f32 : weights == DType::kF16 ? f16 : bf16;
  }
};

// The sets this machine can run, best first; never empty.
const std::vector<LinearKernelSet>& LinearKernelSets();

// linear_avx512bf16.cpp: if `set` is the AVX-512 one and the CPU has vdpbf16ps, gives it that BF16
// kernel and another name.
bool UpgradeToAvx512Bf16(LinearKernelSet& set);

}  // namespace kuiper
