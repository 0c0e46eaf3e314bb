// The kernel of dequantize.h: a thread converts 8 columns of a row. It reads the quantised values
// once and writes 2 or 4 bytes per weight: bound by DRAM.
#include "kuiper/kernels/cuda/dequantize.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"
#include "kuiper/kernels/cuda/quantized_row.cuh"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 8;  // columns per thread

__global__ void __launch_bounds__(kThreads)
    DequantizeKernel(const __grid_constant__ QuantizedForm form, const void* codes,
                     const void* scales, const uint8_t* zeros, int first_row, MatrixArg out,
                     int in) {
  AwaitEarlierKernelsOnly();
  const int row = static_cast<int>(blockIdx.x);
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kColumns;
  if (column >= in) return;
  float w[kColumns];
  form.LoadValues(form.RowOf(codes, scales, zeros, first_row + row), column, w);
  StoreChunk(out.Row(row), out.dtype, out.vectors, column, in, w);
}

}  // namespace

void Dequantize(cudaStream_t stream, const WeightMatrix& matrix, int64_t first_row,
                const Tensor& out) {
  const int in = static_cast<int>(out.shape[1]);
  const dim3 grid(static_cast<unsigned>(out.rows()),
                  static_cast<unsigned>(CeilDiv(in, kThreads * kColumns)));
  Launch<DequantizeKernel>(grid, dim3(kThreads), 0, stream, MakeQuantizedForm(matrix.format, in),
                           matrix.values.data, matrix.scales.data,
                           static_cast<const uint8_t*>(matrix.zeros.data),
                           static_cast<int>(first_row), AsArg(out), in);
}

}  // namespace kuiper::KU_GPU
