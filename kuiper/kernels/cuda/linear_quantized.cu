// Linear layers with quantised weights on tensor cores, the counterpart of linear.cu. The weights
// are the m16 operand, the tokens the n8 operand. An output's order of summation depends only on
// the weight's shape and groups (guarantee G4).
//
// A block has eight warps; `warps_k` of them share 16 rows and alternate along K in blocks of 256
// columns. The operand is value - zero point, exact in FP16 or BF16 (quantized_factors.cuh). The
// products of a group, or of 128 columns of a larger one, are summed in FP32 starting at zero. This
// sum times the group's FP32 scale is added to the accumulator.
//
// Quantised values are read in the file's layout, 16 bytes per lane, bypassing L1. All loads of an
// iteration (values, scales, zero points) are issued before any of them is used. For INT4 with up
// to 8 tokens they are issued while the previous iteration is multiplied. With up to 32 tokens, the
// loads of X for 128 columns are also issued together (docs/machine_code.tsv).
//
// The weights are read once per 64 tokens. The kernel is bound by DRAM up to about T = 32, beyond
// that by the rate of mma and of L1. With up to 8 tokens a lane executes 4 to 5 instructions per
// weight. In the time that its memory needs for an INT4 weight, an Orin can execute 8, an H200 3.5.
#include <algorithm>
#include <bit>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/linear_parts.h"
#include "kuiper/kernels/cuda/mma.cuh"
#include "kuiper/kernels/cuda/quantized_factors.cuh"
#include "kuiper/kernels/cuda/skinny_tile.cuh"

namespace kuiper::KU_GPU {
namespace {

using Kind = WeightFormat::Kind;

constexpr int kBlock = 128;  // columns that are summed before scaling
constexpr int kBlocks = 2;   // blocks of kBlock columns per iteration of a warp
constexpr int kIterationColumns = kBlocks * kBlock;
constexpr int kSteps = 4;                // per block; 32 columns each: two mma of 16
constexpr int kTokenTiles = kPanel / 8;  // maximum tiles of 8 tokens

// Loads the 16 bytes from `column` on. Without kVectors they may have any alignment. With kGuarded
// the column may be past the last one, which gives zeros.
template <int kCodeBits, bool kVectors, bool kGuarded>
__device__ __forceinline__ uint4 LoadCodes(const uint8_t* row, int column, int in) {
  if (kGuarded && column >= in) return make_uint4(0, 0, 0, 0);
  const uint8_t* p = row + static_cast<int64_t>(column) * kCodeBits / 8;
  if constexpr (kVectors) {
    return LoadStreamed(p);
  } else {
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < 16; ++i) words[i / 4] |= static_cast<uint32_t>(p[i]) << i % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// What a lane reads of 128 columns of a row. Lane t of a quad holds the scale and zero point of
// columns [32 t, 32 t + 32).
template <int kCodeBits>
struct RowBlock {
  CodeBlock<kCodeBits> codes;
  ScaleBits scale;
  uint32_t zero;

  template <bool kVectors, bool kGuarded>
  __device__ __forceinline__ void Load(const LinearArgs& p, const QuantizedRow& row, int column,
                                       int group, int t) {
#pragma unroll
    for (int i = 0; i < CodeBlock<kCodeBits>::kLoads; ++i) {
      codes.loads[i] = LoadCodes<kCodeBits, kVectors, kGuarded>(
          row.codes, column + CodeBlock<kCodeBits>::LoadColumn(i, t), p.in);
    }
    scale = LoadScale(row.scales, p.quantized.scale_type, group);
    zero = __ldg(row.zeros + group);
  }
};

// The tokens of a block as one lane reads them: token g of each tile. A token past the end reads
// the last token; its outputs are never stored.
template <Kind kKind, typename T, int kTiles, bool kVectors>
class TokenTiles {
  using Block = CodeBlock<kKind == Kind::kInt4 ? 4 : 8>;

 public:
  __device__ __forceinline__ TokenTiles(const LinearArgs& p, int first, int lane)
      : first_row_(p.x.Row(first)),
        dtype_(p.x.dtype),
        column_(Block::FirstColumn(lane % 4, p.quantized.exchanges())),
        near_(Block::NearColumns(p.quantized.exchanges())) {
    const int last = p.tokens - 1 - first;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int token = n * 8 + lane / 4;
      offset_[n] = static_cast<int>(p.x.row_bytes) * (token < last ? token : last);
    }
  }
  // Loads the fragment of step s of the block of columns starting at `column`; zeros past the end.
  template <bool kGuarded>
  __device__ __forceinline__ uint4 Load(int n, int column, int s, int in) const {
    const int k = column + column_ + s / Block::kNear * 64 + s % Block::kNear * near_;
    return LoadFragment<T, false>(first_row_ + offset_[n], dtype_, kVectors, k,
                                  kGuarded ? in : k + 8);
  }

 private:
  const char* first_row_;
  DType dtype_;
  int column_, near_;
  int offset_[kTiles];
};

__device__ __forceinline__ uint32_t ValueOfStep(uint32_t value, int step) {
  const int quad = static_cast<int>(threadIdx.x) % kWarpSize / 4 * 4;
  return __shfl_sync(kFullWarp, value, quad + step);
}

// acc += scale * sums for both rows of a fragment, then clears the sums.
template <int kTiles>
__device__ __forceinline__ void AddScaled(float (&acc)[kTiles][4], float (&sums)[kTiles][4],
                                          float low, float high) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      acc[n][i] = fmaf(i < 2 ? low : high, sums[n][i], acc[n][i]);
      sums[n][i] = 0.0f;
    }
  }
}

// acc += rows * X for the 128 columns of `rows`. tokens(n, s) returns the fragment of X for token
// tile n < tiles and step s.
template <Kind kKind, typename T, int kTiles, typename Tokens>
__device__ __forceinline__ void MultiplyBlock(
    const QuantizedForm& form, const QuantizedRow (&weight)[2],
    const RowBlock<kKind == Kind::kInt4 ? 4 : 8> (&rows)[2], int tiles, const Tokens& tokens,
    float (&acc)[kTiles][4]) {
  using Codes = CodeFactors<kKind, T>;
  constexpr int kWords = CodeBlock < kKind == Kind::kInt4 ? 4 : 8 > ::kWords;
  uint32_t words[2][kSteps * kWords], zeros[2], scales[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows[h].codes.Arrange(form.exchanges(), words[h]);
    zeros[h] = Codes::Zero(weight[h].ZeroOf(rows[h].zero, form.default_zero));
    scales[h] = __float_as_uint(ScaleValue(rows[h].scale, form.scale_type));
  }
  float sums[kTiles][4] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    uint32_t w[2][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t codes[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) codes[i] = words[h][s * kWords + i];
      Codes::Factors(codes, kKind == Kind::kE4M3 ? 0 : ValueOfStep(zeros[h], s), w[h]);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (kTiles > 1 && n >= tiles) break;
      const uint4 x = tokens(n, s);
      Mma<T>(sums[n], {w[0][0], w[1][0], w[0][1], w[1][1]}, {x.x, x.y});
      Mma<T>(sums[n], {w[0][2], w[1][2], w[0][3], w[1][3]}, {x.z, x.w});
    }
    if (s + 1 == kSteps || (form.group_ends >> s & 1) != 0) {
      AddScaled(acc, sums, __uint_as_float(ValueOfStep(scales[0], s)),
                __uint_as_float(ValueOfStep(scales[1], s)));
    }
  }
}

// What a lane reads of the two rows in one iteration. If kGuarded, columns may be past the last
// one.
template <Kind kKind>
using IterationRows = RowBlock<kKind == Kind::kInt4 ? 4 : 8>[kBlocks][2];

template <Kind kKind, bool kVectors, bool kGuarded>
__device__ __forceinline__ void LoadIteration(const LinearArgs& p, const QuantizedRow (&weight)[2],
                                              int begin_column, int t, IterationRows<kKind>& rows) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int column = begin_column + b * kBlock, step = column + 32 * t;
    const int group = p.quantized.GroupOf(kGuarded && step >= p.in ? p.in - 1 : step);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows[b][h].template Load<kVectors, kGuarded>(p, weight[h], column, group, t);
    }
  }
}

// acc += the products of one iteration of a warp.
template <Kind kKind, typename T, int kTiles, bool kVectors, bool kGuarded>
__device__ __forceinline__ void MultiplyIteration(const LinearArgs& p,
                                                  const QuantizedRow (&weight)[2],
                                                  const TokenTiles<kKind, T, kTiles, kVectors>& x,
                                                  int tiles, const IterationRows<kKind>& rows,
                                                  int begin_column, float (&acc)[kTiles][4]) {
  // Issues the loads of X for a block of columns before any is used, as far as registers allow.
  constexpr bool kAhead = kVectors && kTiles <= 4;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int column = begin_column + b * kBlock;
    if (kGuarded && column >= p.in) break;
    const auto load = [&](int n, int s) { return x.template Load<kGuarded>(n, column, s, p.in); };
    if constexpr (kAhead) {
      uint4 ahead[kSteps][kTiles];
#pragma unroll
      for (int i = 0; i < kSteps * kTiles; ++i) {
        ahead[i / kTiles][i % kTiles] = load(i % kTiles, i / kTiles);
      }
      MultiplyBlock<kKind, T>(
          p.quantized, weight, rows[b], tiles, [&](int n, int s) { return ahead[s][n]; }, acc);
    } else {
      MultiplyBlock<kKind, T>(p.quantized, weight, rows[b], tiles, load, acc);
    }
  }
}

// Blocks per multiprocessor for which the registers suffice to hold the loads of an iteration.
template <int kTiles, bool kVectors>
constexpr int kMinBlocks = kTiles == 1 && kVectors ? 2 : 1;

// kVectors: rows are 16-byte aligned and X has type T. Otherwise bytes are read one by one, 8
// tokens at a time, and X is rounded to T.
template <Kind kKind, typename T, int kTiles, bool kVectors>
__global__ void __launch_bounds__(kSkinnyThreads, kMinBlocks<kTiles, kVectors>)
    SkinnyQuantizedKernel(const __grid_constant__ LinearArgs p, int warps_k) {
  KU_SHARED(reduce, ReduceSpace<kTiles>);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  // Broadcast from lane 0 so that the compiler treats the index as warp-uniform.
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpSize, 0);
  const int g = lane / 4, t = lane % 4;
  const int first_token = static_cast<int>(blockIdx.x) * kTiles * 8;
  const int tiles = (p.tokens - first_token + 7) / 8;
  const LinearArgs::Part& part = p.PartOf(static_cast<int>(blockIdx.y));
  const int tile = static_cast<int>(blockIdx.y) - part.first_tile;
  const bool paired = p.paired();
  const int row = (tile * (kSkinnyWarps / warps_k) + warp / warps_k) * (paired ? 8 : 16) + g;

  // The lower and upper 8 rows of the fragment; with SwiGLU these are gate and up.
  const QuantizedRow weight[2] = {p.CodeRow(part, row),
                                  paired ? p.CodeRow(p.parts[1], row) : p.CodeRow(part, row + 8)};
  // If registers allow, the weights of the next iteration are loaded while this one is multiplied.
  // The first iteration's loads are issued before the earlier kernels have ended.
  constexpr bool kNextAhead = kKind == Kind::kInt4 && kTiles == 1 && kVectors;
  const int column_stride = warps_k * kIterationColumns;
  int begin_column = warp % warps_k * kIterationColumns;
  IterationRows<kKind> rows;
  if (kNextAhead && begin_column + kIterationColumns <= p.in) {
    LoadIteration<kKind, kVectors, false>(p, weight, begin_column, t, rows);
  }
  AwaitEarlierKernels();
  const TokenTiles<kKind, T, kTiles, kVectors> x(p, first_token, lane);
  float acc[1][kTiles][4] = {};
  if constexpr (kVectors) {
#pragma unroll 1
    for (; begin_column + kIterationColumns <= p.in; begin_column += column_stride) {
      if constexpr (kNextAhead) {
        IterationRows<kKind> next;
        if (begin_column + column_stride + kIterationColumns <= p.in) {
          LoadIteration<kKind, kVectors, false>(p, weight, begin_column + column_stride, t, next);
        }
        MultiplyIteration<kKind, T, kTiles, kVectors, false>(p, weight, x, tiles, rows,
                                                             begin_column, acc[0]);
#pragma unroll
        for (int i = 0; i < 2 * kBlocks; ++i) rows[i / 2][i % 2] = next[i / 2][i % 2];
      } else {
        LoadIteration<kKind, kVectors, false>(p, weight, begin_column, t, rows);
        MultiplyIteration<kKind, T, kTiles, kVectors, false>(p, weight, x, tiles, rows,
                                                             begin_column, acc[0]);
      }
    }
  }
#pragma unroll 1
  for (; begin_column < p.in; begin_column += column_stride) {
    LoadIteration<kKind, kVectors, true>(p, weight, begin_column, t, rows);
    MultiplyIteration<kKind, T, kTiles, kVectors, true>(p, weight, x, tiles, rows, begin_column,
                                                        acc[0]);
  }
  StoreTile<kTiles, 1>(p, part, tile, first_token, warps_k, acc, reduce);
}

// Returns how many warps share rows. If there are few rows, more warps must share each to fill the
// device; each warp must have columns.
int WarpsAlongK(int num_outputs, int in) {
  const int wanted = num_outputs <= 16384 ? 8 : num_outputs <= 65536 ? 4 : 2;
  return std::min(wanted,
                  static_cast<int>(std::bit_floor(unsigned(CeilDiv(in, kIterationColumns)))));
}

template <Kind kKind, typename T, int kTiles, bool kVectors>
void LaunchTiles(cudaStream_t stream, LinearArgs& args, int warps_k) {
  const int tiles = args.NumberTiles(kSkinnyWarps / warps_k * 16);
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.tokens, kTiles * 8)),
                  static_cast<unsigned>(tiles));
  Launch<SkinnyQuantizedKernel<kKind, T, kTiles, kVectors>>(grid, dim3(kSkinnyThreads), 0, stream,
                                                            args, warps_k);
}

template <Kind kKind, typename T>
void ApplyFactors(cudaStream_t stream, LinearArgs& args, int num_outputs) {
  const int warps_k = WarpsAlongK(num_outputs, args.in);
  if (!args.vectors || args.x.dtype != DTypeOf<T>::value) {
    return LaunchTiles<kKind, T, 1, false>(stream, args, warps_k);
  }
  if (args.tokens <= 8) return LaunchTiles<kKind, T, 1, true>(stream, args, warps_k);
  if (args.tokens <= 16) return LaunchTiles<kKind, T, 2, true>(stream, args, warps_k);
  if (args.tokens <= 32) return LaunchTiles<kKind, T, 4, true>(stream, args, warps_k);
  return LaunchTiles<kKind, T, kTokenTiles, true>(stream, args, warps_k);
}

template <Kind kKind>
void ApplyKind(cudaStream_t stream, LinearArgs& args, DType operand_type, int num_outputs) {
  if (operand_type == DType::kF16) return ApplyFactors<kKind, Half>(stream, args, num_outputs);
  return ApplyFactors<kKind, BFloat16>(stream, args, num_outputs);
}

}  // namespace

void ApplyQuantized(cudaStream_t stream, LinearArgs& args, const WeightFormat& format,
                    int num_outputs) {
  switch (format.kind) {
    case Kind::kInt4:
      return ApplyKind<Kind::kInt4>(stream, args, format.operand_type, num_outputs);
    case Kind::kInt8:
      return ApplyKind<Kind::kInt8>(stream, args, format.operand_type, num_outputs);
    case Kind::kE4M3:
      return ApplyKind<Kind::kE4M3>(stream, args, format.operand_type, num_outputs);
    default:
      KU_CHECK(false, "dense weights");
  }
}

}  // namespace kuiper::KU_GPU
