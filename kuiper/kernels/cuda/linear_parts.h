// A Linear as a kernel argument: parts whose outputs lie side by side, cut into tiles of rows that
// never cross from one part to the next.
#pragma once

#include "kuiper/kernels/cuda/matrix_arg.h"
#include "kuiper/ops/linear.h"

namespace kuiper::KU_GPU {

struct LinearArgs {
  struct Part {
    const void* weight;  // [out, in]
    const void* bias;    // [out] or null
    DType bias_dtype;
    int out;
    int first_column;  // of the output
    int first_tile;
  };
  Part parts[Linear::kMaxParts];
  int num_parts;
  int in, tokens;
  bool vectors;  // rows of x and of every weight are 16-byte aligned
  MatrixArg x, out;

  // Cuts the parts into tiles; returns how many there are.
  int NumberTiles(int rows_per_tile) {
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
  __device__ __forceinline__ void Store(const Part& part, int token, int row, float sum) const {
    if (part.bias != nullptr) sum += LoadAny(part.bias, part.bias_dtype, row);
    StoreAny(out.Row(token), out.dtype, part.first_column + row, sum);
  }
};

inline LinearArgs MakeLinearArgs(const Tensor& out, const Tensor& x, const Linear& w) {
  LinearArgs args{};
  args.num_parts = w.num_parts;
  args.in = w.in;
  args.tokens = static_cast<int>(x.rows());
  args.x = AsArg(x);
  args.out = AsArg(out);
  args.vectors = args.x.vectors;
  int column = 0;
  for (int i = 0; i < w.num_parts; ++i) {
    const Linear::Part& from = w.parts[i];
    LinearArgs::Part& to = args.parts[i];
    to.weight = from.weight.data;
    to.bias = from.bias.data;
    to.bias_dtype = from.bias.dtype;
    to.out = static_cast<int>(from.weight.shape[0]);
    to.first_column = column;
    column += to.out;
    args.vectors = args.vectors && AsArg(from.weight).vectors;
  }
  return args;
}

}  // namespace kuiper::KU_GPU
