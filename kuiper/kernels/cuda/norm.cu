// RmsNorm: one block per row, 8 elements per thread and step, FP32 sums in a tree
// whose shape depends on the row's width only. Moves each row once from DRAM; the second pass reads
// L1/L2. One token is bound by the launch and two barriers (2 to 3 us expected), many rows by DRAM.
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

}  // namespace

void Run(const Resources& resources, const RmsNormArgs& args) {
  const int n = static_cast<int>(args.x.shape[1]);
  const int warps = CeilDiv(n, 8 * kWarpSize);
  const int threads =
      kWarpSize * (warps < kMaxThreads / kWarpSize ? warps : kMaxThreads / kWarpSize);
  Launch<RmsNormKernel>(dim3(static_cast<unsigned>(args.x.rows())),
                        dim3(static_cast<unsigned>(threads)), 0, resources.stream, AsArg(args.out),
                        AsArg(args.x), AsArg(args.weight), n, args.eps);
}

}  // namespace kuiper::KU_GPU
