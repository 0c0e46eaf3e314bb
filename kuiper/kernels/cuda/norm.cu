// RmsNorm and LayerNorm: one block per row, 8 elements per thread and step, FP32 sums in a tree
// whose shape depends on the row's width only. Moves each row once from DRAM; the second pass (and
// LayerNorm's third: the mean comes before the variance) reads L1/L2. One token is bound by the
// launch and two barriers (2 to 3 us expected), many rows by DRAM.
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kMaxThreads = 256;

__global__ void __launch_bounds__(kMaxThreads, 4)
    RmsNormKernel(const __grid_constant__ MatrixArg out, const __grid_constant__ MatrixArg x,
                  const __grid_constant__ MatrixArg weight, int n, float eps) {
  KU_SHARED(shared, float[kWarpSize]);
  const int64_t t = blockIdx.x;
  const int step = static_cast<int>(blockDim.x) * 8;
  float sum = 0.0f;
  for (int i = static_cast<int>(threadIdx.x) * 8; i < n; i += step) {
    float v[8];
    LoadChunk(x.Row(t), x.dtype, x.vectors, i, n, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
  }
  const float mean = BlockSum(sum, shared) / static_cast<float>(n);
  const float scale = 1.0f / sqrtf(mean + eps);
  for (int i = static_cast<int>(threadIdx.x) * 8; i < n; i += step) {
    float v[8], w[8];
    LoadChunk(x.Row(t), x.dtype, x.vectors, i, n, v);
    LoadChunk(weight.data, weight.dtype, weight.vectors, i, n, w);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = v[j] * scale * w[j];
    StoreChunk(out.Row(t), out.dtype, out.vectors, i, n, v);
  }
}

__global__ void __launch_bounds__(kMaxThreads, 4)
    LayerNormKernel(const __grid_constant__ MatrixArg out, const __grid_constant__ MatrixArg x,
                    const __grid_constant__ MatrixArg weight,
                    const __grid_constant__ MatrixArg bias, int n, float eps) {
  KU_SHARED(shared_sum, float[kWarpSize]);
  KU_SHARED(shared_squares, float[kWarpSize]);
  const int64_t t = blockIdx.x;
  const int step = static_cast<int>(blockDim.x) * 8;
  const int first = static_cast<int>(threadIdx.x) * 8;
  float sum = 0.0f;
  for (int i = first; i < n; i += step) {
    float v[8];
    LoadChunk(x.Row(t), x.dtype, x.vectors, i, n, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += v[j];
  }
  const float mean = BlockSum(sum, shared_sum) / static_cast<float>(n);
  float squares = 0.0f;
  for (int i = first; i < n; i += step) {
    float v[8];
    LoadChunk(x.Row(t), x.dtype, x.vectors, i, n, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float centered = i + j < n ? v[j] - mean : 0.0f;
      squares = fmaf(centered, centered, squares);
    }
  }
  const float variance = BlockSum(squares, shared_squares) / static_cast<float>(n);
  const float scale = 1.0f / sqrtf(variance + eps);
  for (int i = first; i < n; i += step) {
    float v[8], w[8], b[8];
    LoadChunk(x.Row(t), x.dtype, x.vectors, i, n, v);
    LoadChunk(weight.data, weight.dtype, weight.vectors, i, n, w);
    LoadChunk(bias.data, bias.dtype, bias.vectors, i, n, b);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = fmaf((v[j] - mean) * scale, w[j], b[j]);
    StoreChunk(out.Row(t), out.dtype, out.vectors, i, n, v);
  }
}

// A thread for 8 elements, as far as there are threads.
dim3 BlockOf(int n) {
  const int warps = CeilDiv(n, 8 * kWarpSize), most = kMaxThreads / kWarpSize;
  return dim3(static_cast<unsigned>(kWarpSize * (warps < most ? warps : most)));
}

}  // namespace

void Run(const Resources& resources, const RmsNormArgs& args) {
  const int n = static_cast<int>(args.x.shape[1]);
  Launch<RmsNormKernel>(dim3(static_cast<unsigned>(args.x.rows())), BlockOf(n), 0, resources.stream,
                        AsArg(args.out), AsArg(args.x), AsArg(args.weight), n, args.eps);
}

void Run(const Resources& resources, const LayerNormArgs& args) {
  const int n = static_cast<int>(args.x.shape[1]);
  Launch<LayerNormKernel>(dim3(static_cast<unsigned>(args.x.rows())), BlockOf(n), 0,
                          resources.stream, AsArg(args.out), AsArg(args.x), AsArg(args.weight),
                          AsArg(args.bias), n, args.eps);
}

}  // namespace kuiper::KU_GPU
