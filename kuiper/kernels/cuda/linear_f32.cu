// Linear layers with FP32 weights, or with quantised weights whose numeric type is FP32, on the
// CUDA cores; the counterpart of linear.cu and linear_quantized.cu. A weight is an FP32 number. The
// order of summation depends only on the weight's shape. A block has eight warps. kWarpsK of them
// share 4 weight rows and alternate along K in blocks of 128; each lane computes 4 consecutive
// columns for up to 8 tokens at a time. First the 32 lanes of a warp are summed in ascending order,
// then the warps.
//
// The weights are read once per 8 tokens from DRAM or L2. Decode is bound by DRAM (85 to 90 % of
// read bandwidth expected), long prefills by L1, at about a third of the FP32 rate.
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/linear_parts.h"
#include "kuiper/kernels/cuda/matrix_arg.h"
#include "kuiper/kernels/cuda/memory_access.cuh"

namespace kuiper::KU_GPU {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kRows = 4;                          // weight rows per warp
constexpr int kIterationColumns = 4 * kWarpSize;  // columns per iteration of a warp

// The two kinds of weights: their row type, how a lane loads columns [k, k + 4) of a row, and the
// minimum blocks per multiprocessor.
template <bool kVectors>
struct DenseF32 {
  using Row = const float*;
  static constexpr int kMinBlocks = 0;  // ptxas chooses
  static __device__ __forceinline__ Row RowOf(const LinearArgs& p, const LinearArgs::Part& part,
                                              int row) {
    return p.DenseRow<float>(part, row);
  }
  static __device__ __forceinline__ void Load(const LinearArgs& p, Row row, int k, float (&w)[4]) {
    if constexpr (kVectors) {
      Unpack(LoadStreamed(row + k), w, 0.0f);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) w[j] = k + j < p.in ? row[k + j] : 0.0f;
    }
  }
};
struct QuantizedF32 {
  using Row = QuantizedRow;
  static constexpr int kMinBlocks = 2;  // by default ptxas aims at three, and spills
  static __device__ __forceinline__ Row RowOf(const LinearArgs& p, const LinearArgs::Part& part,
                                              int row) {
    return p.CodeRow(part, row);
  }
  static __device__ __forceinline__ void Load(const LinearArgs& p, const Row& row, int k,
                                              float (&w)[4]) {
    p.quantized.LoadValues(row, k, w);
  }
};

// kVectors: rows of X are FP32 and 16-byte aligned.
template <typename Weights, int kTokens, int kWarpsK, bool kVectors>
__global__ void __launch_bounds__(kThreads, Weights::kMinBlocks)
    SkinnyF32Kernel(const __grid_constant__ LinearArgs p) {
  constexpr int kGroups = kWarps / kWarpsK;
  constexpr int kSums = kRows * kTokens;
  KU_SHARED(lanes, float[kWarps][kSums][kWarpSize + 1]);
  KU_SHARED(sums, float[kWarps][kSums]);
  AwaitEarlierKernels();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int first_token = static_cast<int>(blockIdx.x) * kTokens;
  const LinearArgs::Part& part = p.PartOf(static_cast<int>(blockIdx.y));
  const int tile = static_cast<int>(blockIdx.y) - part.first_tile;
  const bool paired = p.paired();
  const int tile_rows = paired ? kRows / 2 : kRows;  // output rows per warp
  const int row0 = (tile * kGroups + warp / kWarpsK) * tile_rows;
  const int in = p.in;

  // With SwiGLU the upper half of the rows belongs to up.
  typename Weights::Row weight[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    weight[r] = paired && r >= kRows / 2 ? Weights::RowOf(p, p.parts[1], row0 + r - kRows / 2)
                                         : Weights::RowOf(p, part, row0 + r);
  }
  float acc[kRows][kTokens] = {};
  for (int k = warp % kWarpsK * kIterationColumns + 4 * lane; k < in;
       k += kWarpsK * kIterationColumns) {
    float w[kRows][4];
#pragma unroll
    for (int r = 0; r < kRows; ++r) Weights::Load(p, weight[r], k, w[r]);
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (first_token + n >= p.tokens) break;
      const char* row = p.x.Row(first_token + n);
      float x[4];
      if constexpr (kVectors) {
        LoadValues(reinterpret_cast<const float*>(row) + k, x);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = k + j < in ? LoadAny(row, p.x.dtype, k + j) : 0.0f;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[r][n] = fmaf(w[r][j], x[j], acc[r][n]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int n = 0; n < kTokens; ++n) lanes[warp][r * kTokens + n][lane] = acc[r][n];
  }
  __syncwarp();
  if (lane < kSums) {
    float sum = lanes[warp][lane][0];
    for (int i = 1; i < kWarpSize; ++i) sum += lanes[warp][lane][i];
    sums[warp][lane] = sum;
  }
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kGroups * kSums) return;
  const int group = i / kSums, r = i % kSums / kTokens, n = i % kTokens;
  const int row = (tile * kGroups + group) * tile_rows + r;
  if (r >= tile_rows || row >= part.out || first_token + n >= p.tokens) return;
  const auto sum_of = [&](int slot) {
    float sum = sums[group * kWarpsK][slot];
#pragma unroll
    for (int k = 1; k < kWarpsK; ++k) sum += sums[group * kWarpsK + k][slot];
    return sum;
  };
  if (paired) {
    p.StoreSwiGlu(first_token + n, row, sum_of(i % kSums), sum_of(i % kSums + kSums / 2));
  } else {
    p.Store(part, first_token + n, row, sum_of(i % kSums));
  }
}

template <typename Weights, int kTokens, int kWarpsK, bool kVectors>
void LaunchTiles(cudaStream_t stream, LinearArgs& args) {
  const int tiles = args.NumberTiles(kWarps / kWarpsK * kRows);
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.tokens, kTokens)),
                  static_cast<unsigned>(tiles));
  Launch<SkinnyF32Kernel<Weights, kTokens, kWarpsK, kVectors>>(grid, dim3(kThreads), 0, stream,
                                                               args);
}

template <int kWarpsK>
void LaunchWarps(cudaStream_t stream, LinearArgs& args, bool vectors) {
  using Weights = DenseF32<true>;
  if (!vectors) return LaunchTiles<DenseF32<false>, 8, kWarpsK, false>(stream, args);
  if (args.tokens == 1) return LaunchTiles<Weights, 1, kWarpsK, true>(stream, args);
  if (args.tokens == 2) return LaunchTiles<Weights, 2, kWarpsK, true>(stream, args);
  if (args.tokens <= 4) return LaunchTiles<Weights, 4, kWarpsK, true>(stream, args);
  return LaunchTiles<Weights, 8, kWarpsK, true>(stream, args);
}

}  // namespace

void ApplyF32(cudaStream_t stream, LinearArgs& args, int num_outputs) {
  const bool vectors = args.vectors && args.x.dtype == DType::kF32 && args.in % 4 == 0;
  if (num_outputs <= 16384) return LaunchWarps<8>(stream, args, vectors);
  return LaunchWarps<2>(stream, args, vectors);
}

// The reference for other numeric types: designed for correctness, in one configuration.
void ApplyQuantizedF32(cudaStream_t stream, LinearArgs& args) {
  const bool vectors = args.x.vectors && args.x.dtype == DType::kF32;
  if (!vectors) return LaunchTiles<QuantizedF32, 8, 8, false>(stream, args);
  if (args.tokens == 1) return LaunchTiles<QuantizedF32, 1, 8, true>(stream, args);
  return LaunchTiles<QuantizedF32, 8, 8, true>(stream, args);
}

}  // namespace kuiper::KU_GPU
