// RmsNorm and LayerNorm: one block per row, 8 elements per thread and iteration. FP32 sums form a
// tree whose shape depends only on the row's width. Each row is read once from DRAM; elements that
// a thread does not keep in registers are read again from L1/L2. LayerNorm rereads all of them
// twice, because it needs the mean before the variance. One token is bound by the launch and two
// barriers (2 to 3 us expected), many rows by DRAM.
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kRegisterChunks = 2;  // iterations that RmsNorm keeps in registers: 4096 elements

__global__ void __launch_bounds__(kMaxThreads, 4)
    RmsNormKernel(const __grid_constant__ MatrixArg out, const __grid_constant__ MatrixArg x,
                  const __grid_constant__ MatrixArg weight, int n, float eps) {
  KU_SHARED(shared, float[kWarpSize]);
  const int64_t t = blockIdx.x;
  const int first = static_cast<int>(threadIdx.x) * 8, step = static_cast<int>(blockDim.x) * 8;
  float v[kRegisterChunks][8], w[kRegisterChunks][8];
#pragma unroll
  for (int c = 0; c < kRegisterChunks; ++c) {
    const int i = first + c * step;
    if (i < n) LoadChunk(weight.data, weight.dtype, weight.vectors, i, n, w[c]);
  }
  AwaitEarlierKernels();
  float sum = 0.0f;
  const auto add = [&](const float(&chunk)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = fmaf(chunk[j], chunk[j], sum);
  };
#pragma unroll
  for (int c = 0; c < kRegisterChunks; ++c) {
    const int i = first + c * step;
    if (i >= n) break;
    LoadChunk(x.Row(t), x.dtype, x.vectors, i, n, v[c]);
    add(v[c]);
  }
  for (int i = first + kRegisterChunks * step; i < n; i += step) {
    float chunk[8];
    LoadChunk(x.Row(t), x.dtype, x.vectors, i, n, chunk);
    add(chunk);
  }
  const float mean = BlockSum(sum, shared) / static_cast<float>(n);
  const float scale = 1.0f / sqrtf(mean + eps);
  const auto store = [&](int i, float(&chunk)[8], const float(&weights)[8]) {
#pragma unroll
    for (int j = 0; j < 8; ++j) chunk[j] = chunk[j] * scale * weights[j];
    StoreChunk(out.Row(t), out.dtype, out.vectors, i, n, chunk);
  };
#pragma unroll
  for (int c = 0; c < kRegisterChunks; ++c) {
    const int i = first + c * step;
    if (i < n) store(i, v[c], w[c]);
  }
  for (int i = first + kRegisterChunks * step; i < n; i += step) {
    float chunk[8], weights[8];
    LoadChunk(x.Row(t), x.dtype, x.vectors, i, n, chunk);
    LoadChunk(weight.data, weight.dtype, weight.vectors, i, n, weights);
    store(i, chunk, weights);
  }
}

__global__ void __launch_bounds__(kMaxThreads, 4)
    LayerNormKernel(const __grid_constant__ MatrixArg out, const __grid_constant__ MatrixArg x,
                    const __grid_constant__ MatrixArg weight,
                    const __grid_constant__ MatrixArg bias, int n, float eps) {
  KU_SHARED(shared_sum, float[kWarpSize]);
  KU_SHARED(shared_squares, float[kWarpSize]);
  AwaitEarlierKernels();
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

// One thread per 8 elements, up to kMaxThreads.
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
