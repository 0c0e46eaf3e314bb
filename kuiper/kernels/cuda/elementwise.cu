// Embed (also GatherRows) and SiluMul. One thread per 8 elements, blocks of 128 threads over the
// columns of one row; 16-byte loads and stores where rows are aligned. Each input and output moves
// once, so a step of one token is bound by the launch and long prefills by DRAM (about 90 % of copy
// bandwidth expected; not measured).
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 128;

// out[t] = table[ids[t]]; an id below zero, -1 - r, stands for sampled[r]. An id outside the table
// gives NaN, which the guard of Sample reports.
__global__ void __launch_bounds__(kThreads)
    EmbedKernel(MatrixArg out, MatrixArg table, const int32_t* ids, const int32_t* sampled,
                int num_sampled, int64_t num_rows, int n) {
  const int64_t t = blockIdx.x;
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  if (i >= n) return;
  int32_t id = ids[t];
  if (id < 0 && -1 - id < num_sampled) id = sampled[-1 - id];
  float v[8];
  if (id >= 0 && id < num_rows) {
    LoadChunk(table.Row(id), table.dtype, table.vectors, i, n, v);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = __uint_as_float(0x7fc00000u);
  }
  StoreChunk(out.Row(t), out.dtype, out.vectors, i, n, v);
}

// silu(gate) * up. FP16 cannot hold products above 65504; they are clamped, because an infinity
// would spread over the row at the next layer (NaN is kept).
__global__ void __launch_bounds__(kThreads)
    SiluMulKernel(MatrixArg out, MatrixArg gate_up, bool up_vectors, int n) {
  const int64_t t = blockIdx.x;
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  if (i >= n) return;
  const char* row = gate_up.Row(t);
  const char* up_row = row + static_cast<int64_t>(n) * (gate_up.dtype == DType::kF32 ? 4 : 2);
  float gate[8], up[8];
  LoadChunk(row, gate_up.dtype, gate_up.vectors, i, n, gate);
  LoadChunk(up_row, gate_up.dtype, up_vectors, i, n, up);
  const float limit = out.dtype == DType::kF16 ? 65504.0f : INFINITY;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    // e^88 is finite and 1 + e^88 makes the quotient vanish; NaN survives in the numerator.
    const float y = gate[j] / (1.0f + expf(fminf(-gate[j], 88.0f))) * up[j];
    gate[j] = y > limit ? limit : y < -limit ? -limit : y;
  }
  StoreChunk(out.Row(t), out.dtype, out.vectors, i, n, gate);
}

dim3 GridOf(int64_t rows, int n) {
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(CeilDiv(n, kThreads * 8)));
}

}  // namespace

void Embed(cudaStream_t stream, Tensor out, Tensor table, Tensor ids, Tensor sampled) {
  const int n = static_cast<int>(out.shape[1]);
  Launch(EmbedKernel, GridOf(out.rows(), n), dim3(kThreads), 0, stream, AsArg(out), AsArg(table),
         static_cast<const int32_t*>(ids.data), static_cast<const int32_t*>(sampled.data),
         static_cast<int>(sampled.empty() ? 0 : sampled.numel()), table.rows(), n);
}

void SiluMul(cudaStream_t stream, Tensor out, Tensor gate_up) {
  const int n = static_cast<int>(out.shape[1]);
  const MatrixArg arg = AsArg(gate_up);
  const bool up_vectors =
      arg.vectors && n * static_cast<int64_t>(DTypeBytes(gate_up.dtype)) % 16 == 0;
  Launch(SiluMulKernel, GridOf(out.rows(), n), dim3(kThreads), 0, stream, AsArg(out), arg,
         up_vectors, n);
}

}  // namespace kuiper::KU_GPU
