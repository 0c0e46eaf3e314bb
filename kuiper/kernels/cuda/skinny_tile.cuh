// Code shared by the tensor-core kernels of linear.cu and linear_quantized.cu: the shape of a
// block, loading operands as fragments, and storing the sums of a block as outputs. A block has
// eight warps; `warps_k` of them share rows and alternate along K.
#pragma once

#include <cstdint>

#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/linear_parts.h"
#include "kuiper/kernels/cuda/memory_access.cuh"
#include "kuiper/kernels/cuda/numeric.cuh"

namespace kuiper::KU_GPU {

constexpr int kSkinnyWarps = 8;
constexpr int kSkinnyThreads = kSkinnyWarps * kWarpSize;
constexpr int kPanel = kPassRows;  // maximum tokens of a block

// Loads columns [k, k + 8) of a row as packed T, zeros from column n on. `vectors`: one 16-byte
// load.
template <typename T, bool kStream>
__device__ __forceinline__ uint4 LoadFragment(const void* row, DType dtype, bool vectors, int k,
                                              int n) {
  if (k >= n) return make_uint4(0, 0, 0, 0);
  if (vectors) {
    const uint4* p = reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(row) + k);
    return kStream ? LoadStreamed(p) : *p;
  }
  float v[8];
  LoadChunk(row, dtype, false, k, n, v);
  return make_uint4(PackPair<T>(v[0], v[1]), PackPair<T>(v[2], v[3]), PackPair<T>(v[4], v[5]),
                    PackPair<T>(v[6], v[7]));
}

// Token tiles that are summed at a time in the block's shared memory.
template <int kTokenTiles>
constexpr int kReduceTiles = kTokenTiles < 2 ? kTokenTiles : 2;
template <int kTokenTiles>
using ReduceSpace = float[kSkinnyWarps][4 * kReduceTiles<kTokenTiles>][kWarpSize];

// Sums the warps that share rows, in ascending order, and stores the outputs. acc: this warp's sums
// for rows [16 kRowTiles] and tokens [8 kTokenTiles], as fragments. All threads of the block must
// reach the call.
template <int kTokenTiles, int kRowTiles>
__device__ __forceinline__ void StoreTile(const LinearArgs& p, const LinearArgs::Part& part,
                                          int tile, int first_token, int warps_k,
                                          const float (&acc)[kRowTiles][kTokenTiles][4],
                                          ReduceSpace<kTokenTiles>& reduce) {
  constexpr int kTiles = kReduceTiles<kTokenTiles>;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int groups = kSkinnyWarps / warps_k;  // groups of warps that share rows
  const bool paired = p.paired();
  const int tile_rows = paired ? 8 : 16;  // output rows per row tile
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; n += kTiles) {
      if (first_token + n * 8 >= p.tokens) break;
      __syncthreads();
#pragma unroll
      for (int r = 0; r < 4 * kTiles; ++r) reduce[warp][r][lane] = acc[m][n + r / 4][r % 4];
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < groups * 4 * kTiles * kWarpSize;
           i += kSkinnyThreads) {
        const int from = i % kWarpSize, r = i / kWarpSize % (4 * kTiles);
        const int group = i / (kWarpSize * 4 * kTiles);
        // Registers 0 and 1 belong to the lower rows, 2 and 3 to the upper rows; columns 2t and 2t
        // + 1.
        const int upper = r % 4 / 2;
        if (paired && upper != 0) continue;
        const int row =
            (tile * groups + group) * kRowTiles * tile_rows + m * tile_rows + from / 4 + upper * 8;
        const int token = first_token + (n + r / 4) * 8 + 2 * (from % 4) + r % 2;
        if (row >= part.out || token >= p.tokens) continue;
        const auto sum_of = [&](int slot) {
          float sum = reduce[group * warps_k][slot][from];
#pragma unroll
          for (int k = 1; k < warps_k; ++k) sum += reduce[group * warps_k + k][slot][from];
          return sum;
        };
        if (paired) {
          p.StoreSwiGlu(token, row, sum_of(r), sum_of(r + 2));
        } else {
          p.Store(part, token, row, sum_of(r));
        }
      }
    }
  }
}

}  // namespace kuiper::KU_GPU
