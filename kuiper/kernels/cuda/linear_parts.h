// A Linear as a kernel argument: parts whose outputs are adjacent, divided into tiles of rows that
// never span two parts. With SwiGLU every tile has the same rows of gate and of up, so that a block
// has both operands of its outputs.
#pragma once

#include "kuiper/kernels/cuda/matrix_arg.h"
#include "kuiper/kernels/cuda/quantized_row.cuh"
#include "kuiper/ops/linear.h"

namespace kuiper::KU_GPU {

// The activation of kGeluTanh or kGeluErf.
__device__ __forceinline__ float GeluOf(Epilogue epilogue, float y) {
  if (epilogue == Epilogue::kGeluErf) return 0.5f * y * (1.0f + erff(y * 0.707106781f));
  // e^88 is finite and 1 + e^88 makes the quotient vanish; NaN survives in the numerator.
  const float inner = fmaf(0.044715f * y * y, y, y);
  return y / (1.0f + expf(fminf(-1.59576912f * inner, 88.0f)));
}

struct LinearArgs {
  struct Part {
    const void* weight;    // values of the WeightMatrix
    const void* scales;    // scales of a quantised WeightMatrix
    const uint8_t* zeros;  // zero points; null: all are default_zero
    const void* bias;      // [out] or null
    DType bias_dtype;
    int out;
    int first_column;  // first column in the output
    int first_tile;
  };
  Part parts[Linear::kMaxParts];
  int num_parts;  // parts divided into tiles; with SwiGLU only gate
  int in, tokens;
  Epilogue epilogue;
  bool vectors;  // rows of x and of every weight are 16-byte aligned
  MatrixArg x, out;
  QuantizedForm quantized;

  // Divides the parts into tiles; returns the number of tiles.
  int NumberTiles(int rows_per_tile) {
    if (epilogue == Epilogue::kSwiGlu) rows_per_tile /= 2;
    int tiles = 0;
    for (int i = 0; i < num_parts; ++i) {
      parts[i].first_tile = tiles;
      tiles += CeilDiv(parts[i].out, rows_per_tile);
    }
    return tiles;
  }
  __device__ __forceinline__ const Part& PartOf(int tile) const {
    int i = 0;
    while (i + 1 < num_parts && tile >= parts[i + 1].first_tile) ++i;
    return parts[i];
  }
  __device__ __forceinline__ bool paired() const { return epilogue == Epilogue::kSwiGlu; }
  // Returns row `row` of a part in a dense format with elements of type T. Rows past the end read
  // the last row; their outputs are never stored.
  template <typename T>
  __device__ __forceinline__ const T* DenseRow(const Part& part, int row) const {
    row = row < part.out ? row : part.out - 1;
    return static_cast<const T*>(part.weight) + static_cast<int64_t>(row) * in;
  }
  // Like DenseRow, for a part in a quantised format.
  __device__ __forceinline__ QuantizedRow CodeRow(const Part& part, int row) const {
    row = row < part.out ? row : part.out - 1;
    return quantized.RowOf(part.weight, part.scales, part.zeros, row);
  }
  __device__ __forceinline__ float WithBias(const Part& part, int row, float sum) const {
    return part.bias == nullptr ? sum : sum + LoadAny(part.bias, part.bias_dtype, row);
  }
  __device__ __forceinline__ void Store(const Part& part, int token, int row, float sum) const {
    char* y = out.Row(token);
    const int column = part.first_column + row;
    sum = WithBias(part, row, sum);
    if (epilogue == Epilogue::kAdd) sum += LoadAny(y, out.dtype, column);
    StoreAny(y, out.dtype, column, sum);
  }
  // gelu(sum + bias).
  __device__ __forceinline__ void StoreGelu(const Part& part, int token, int row, float sum) const {
    StoreAny(out.Row(token), out.dtype, part.first_column + row,
             GeluOf(epilogue, WithBias(part, row, sum)));
  }
  // silu(gate) * up. FP16 cannot represent products above 65504. They are clamped, because an
  // infinity would spread over the row in the next layer (NaN is kept).
  __device__ __forceinline__ void StoreSwiGlu(int token, int row, float gate, float up) const {
    gate = WithBias(parts[0], row, gate);
    up = WithBias(parts[1], row, up);
    // e^88 is finite and 1 + e^88 makes the quotient vanish; NaN survives in the numerator.
    const float y = gate / (1.0f + expf(fminf(-gate, 88.0f))) * up;
    const float limit = out.dtype == DType::kF16 ? 65504.0f : INFINITY;
    StoreAny(out.Row(token), out.dtype, row, y > limit ? limit : y < -limit ? -limit : y);
  }
};

inline LinearArgs MakeLinearArgs(const Tensor& out, const Tensor& x, const Linear& w,
                                 Epilogue epilogue) {
  LinearArgs args{};
  args.epilogue = epilogue;
  args.num_parts = epilogue == Epilogue::kSwiGlu ? 1 : w.num_parts;
  args.in = w.in;
  args.tokens = static_cast<int>(x.rows());
  args.x = AsArg(x);
  args.out = AsArg(out);
  args.quantized = MakeQuantizedForm(w.format(), w.in);
  args.vectors = args.x.vectors;
  int column = 0;
  for (int i = 0; i < w.num_parts; ++i) {
    const Linear::Part& from = w.parts[i];
    LinearArgs::Part& to = args.parts[i];
    to.weight = from.weight.values.data;
    to.scales = from.weight.scales.data;
    to.zeros = static_cast<const uint8_t*>(from.weight.zeros.data);
    to.bias = from.bias.data;
    to.bias_dtype = from.bias.dtype;
    to.out = static_cast<int>(from.weight.rows());
    to.first_column = column;
    column += to.out;
    args.vectors = args.vectors && AsArg(from.weight.values).vectors;
  }
  return args;
}

// elementwise.cu: out = gelu(out), after a decode kernel has stored sums.
void ApplyGelu(cudaStream_t stream, const Tensor& out, Epilogue epilogue);
// linear_f32.cu: like ApplySkinny of linear.cu, for FP32 weights. The order of summation depends
// only on the number of outputs and on K.
void ApplyF32(cudaStream_t stream, LinearArgs& args, int num_outputs);
// Like ApplyF32, for quantised weights whose numeric type is FP32.
void ApplyQuantizedF32(cudaStream_t stream, LinearArgs& args);
// linear_quantized.cu: for quantised weights whose numeric type is FP16 or BF16.
void ApplyQuantized(cudaStream_t stream, LinearArgs& args, const WeightFormat& format,
                    int num_outputs);

}  // namespace kuiper::KU_GPU
