// Linear layers with FP16 or BF16 weights on tensor cores, designed for few tokens. The weights are
// the m16 operand of mma.m16n8k16 and the tokens the n8 operand, so 1 to 8 tokens cost the same. An
// output's order of summation depends only on the weight's shape (guarantee G4). More tokens are
// processed in panels of 64 by the same kernel, which keeps decode and prefill bitwise equal.
//
// A block has eight warps. kWarpsK of them share 16 * kRowTiles weight rows and alternate along K
// in blocks of 128. Their FP32 accumulators are summed in ascending order at the end. Weights stay
// row-major [N, K]: lane (g, t) reads the 16 bytes W[n + g][k + 8t ...] and X[token g][k + 8t ...].
// This is the A and B fragment of two mma steps if both operands permute k alike. So the loop needs
// neither shared memory nor barriers.
//
// Each lane has 8 * kRowTiles 16-byte loads of weights in flight, bypassing L1. They belong to a
// later iteration and are issued during the products of this one. With up to 8 tokens the 4 loads
// of X of that iteration are also in flight, through L1 (docs/machine_code.tsv). A matrix with few
// rows has few blocks; with up to 8 tokens each block then has the loads of two iterations in
// flight.
//
// The weights are read once per 64 tokens. The kernel is bound by DRAM up to T = 64; 80 to 88 % of
// read bandwidth expected on large layers. Beyond, it is bound by the rate of mma and of L1.
#include <algorithm>

#include "kuiper/kernels/cuda/dense_linear.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/linear_parts.h"
#include "kuiper/kernels/cuda/matrix_arg.h"
#include "kuiper/kernels/cuda/mma.cuh"
#include "kuiper/kernels/cuda/skinny_tile.cuh"

namespace kuiper::KU_GPU {
namespace {

constexpr int kSteps = 4;                       // steps of 32 columns per iteration of a warp
constexpr int kIterationColumns = 32 * kSteps;  // columns

// True if a warp issues all loads of an iteration before it uses one. They need the registers that
// remain with three blocks per SM. Without the hint, ptxas saves registers and moves loads after
// products.
template <int kTokenTiles, bool kVectors>
constexpr bool kLoadsAhead = kTokenTiles == 1 && kVectors;

// Blocks per SM for which the registers suffice, with the weights of one or of two iterations in
// flight. For sm_87 ptxas would spill a register with two iterations, which only matrices of up to
// 512 rows use there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 870
constexpr int kResidentOfTwo = 1;
#else
constexpr int kResidentOfTwo = 2;
#endif
template <int kIterationsAhead>
constexpr int kResident = kIterationsAhead == 1 ? 3 : kResidentOfTwo;

// kVectors: K is a multiple of 8, rows are 16-byte aligned and X has the weights' type. Otherwise
// elements are read one by one and X is rounded to T.
template <typename T, int kTokenTiles, int kRowTiles, int kWarpsK, bool kVectors,
          int kIterationsAhead>
__global__ void __launch_bounds__(kSkinnyThreads, kLoadsAhead<kTokenTiles, kVectors>
                                                      ? kResident<kIterationsAhead>
                                                      : 0)
    SkinnyKernel(const __grid_constant__ LinearArgs p) {
  constexpr int kGroups = kSkinnyWarps / kWarpsK;  // groups of warps that share rows
  KU_SHARED(reduce, ReduceSpace<kTokenTiles>);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int g = lane / 4, t = lane % 4;
  const int first_token = static_cast<int>(blockIdx.x) * kPanel;
  const LinearArgs::Part& part = p.PartOf(static_cast<int>(blockIdx.y));
  const int tile = static_cast<int>(blockIdx.y) - part.first_tile;
  const bool paired = p.paired();
  const int tile_rows = paired ? 8 : 16;  // output rows per row tile
  const int row0 = (tile * kGroups + warp / kWarpsK) * kRowTiles * tile_rows;
  const int in = p.in;

  // The lower and upper 8 rows of each row tile; with SwiGLU these are gate and up.
  const void* weight[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    const int row = row0 + m * tile_rows + g;
    weight[m][0] = p.DenseRow<T>(part, row);
    weight[m][1] = paired ? p.DenseRow<T>(p.parts[1], row) : p.DenseRow<T>(part, row + 8);
  }
  constexpr int kStride = kWarpsK * kIterationColumns;
  uint4 w[kIterationsAhead][kSteps][kRowTiles][2];
  const auto load_weights = [&](int b, int s, int k) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        w[b][s][m][h] =
            LoadFragment<T, true>(weight[m][h], DTypeOf<T>::value, kVectors, k + 8 * t, in);
      }
    }
  };
  int begin_column = warp % kWarpsK * kIterationColumns;
#pragma unroll
  for (int b = 0; b < kIterationsAhead; ++b) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) load_weights(b, s, begin_column + b * kStride + 32 * s);
  }
  AwaitEarlierKernels();
  const auto load_tokens = [&](int n, int k) {
    const int token = first_token + n * 8 + g;
    return LoadFragment<T, false>(p.x.Row(token < p.tokens ? token : 0), p.x.dtype, kVectors,
                                  token < p.tokens ? k + 8 * t : in, in);
  };
  constexpr bool kAhead = kLoadsAhead<kTokenTiles, kVectors>;
  float acc[kRowTiles][kTokenTiles][4] = {};
#pragma unroll 1
  for (; begin_column < in; begin_column += kIterationsAhead * kStride) {
#pragma unroll
    for (int b = 0; b < kIterationsAhead; ++b) {
      uint4 ahead[kSteps];
      if constexpr (kAhead) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s)
          ahead[s] = load_tokens(0, begin_column + b * kStride + 32 * s);
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int k = begin_column + b * kStride + 32 * s;
        if (kAhead || k < in) {
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n) {
            const uint4 x = kAhead ? ahead[s] : load_tokens(n, k);
#pragma unroll
            for (int m = 0; m < kRowTiles; ++m) {
              const uint4 &lo = w[b][s][m][0], &hi = w[b][s][m][1];
              Mma<T>(acc[m][n], {lo.x, hi.x, lo.y, hi.y}, {x.x, x.y});
              Mma<T>(acc[m][n], {lo.z, hi.z, lo.w, hi.w}, {x.z, x.w});
            }
          }
        }
        load_weights(b, s, k + kIterationsAhead * kStride);  // weights of a later iteration
      }
    }
  }

  StoreTile<kTokenTiles, kRowTiles>(p, part, tile, first_token, kWarpsK, acc, reduce);
}

template <typename T, int kTokenTiles, int kRowTiles, int kWarpsK, bool kVectors,
          int kIterationsAhead = 1>
void LaunchTiles(cudaStream_t stream, LinearArgs& args) {
  const int tiles = args.NumberTiles(kSkinnyWarps / kWarpsK * kRowTiles * 16);
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.tokens, kPanel)),
                  static_cast<unsigned>(tiles));
  Launch<SkinnyKernel<T, kTokenTiles, kRowTiles, kWarpsK, kVectors, kIterationsAhead>>(
      grid, dim3(kSkinnyThreads), 0, stream, args);
}

// Chooses the kernel by tokens and registers; the choice never changes a bit.
template <typename T, int kWarpsK>
void LaunchWarps(cudaStream_t stream, LinearArgs& args, bool vectors, int num_sms) {
  if (!vectors) {
    if (args.tokens <= 8) return LaunchTiles<T, 1, 1, kWarpsK, false>(stream, args);
    return LaunchTiles<T, 8, 1, kWarpsK, false>(stream, args);
  }
  if (args.tokens <= 8) {
    // If an SM has two blocks or fewer, they use all its registers for loads. (Four iterations for
    // a single block were slower.)
    if constexpr (kWarpsK == 8) {
      if (args.NumberTiles(16) <= 2 * num_sms) {
        return LaunchTiles<T, 1, 1, kWarpsK, true, 2>(stream, args);
      }
    }
    return LaunchTiles<T, 1, 1, kWarpsK, true>(stream, args);
  }
  if (args.tokens <= 16) return LaunchTiles<T, 2, 1, kWarpsK, true>(stream, args);
  if (args.tokens <= 32) return LaunchTiles<T, 4, 2, kWarpsK, true>(stream, args);
  return LaunchTiles<T, 8, 2, kWarpsK, true>(stream, args);
}

// The order of summation depends only on the weight's shape. If there are few rows, more warps must
// share each along K to fill the device.
template <typename T>
void Apply16(cudaStream_t stream, LinearArgs& args, int num_outputs, int num_sms) {
  const bool vectors = args.vectors && args.x.dtype == DTypeOf<T>::value && args.in % 8 == 0;
  if (num_outputs <= 16384) return LaunchWarps<T, 8>(stream, args, vectors, num_sms);
  if (num_outputs <= 65536) return LaunchWarps<T, 4>(stream, args, vectors, num_sms);
  return LaunchWarps<T, 2>(stream, args, vectors, num_sms);
}

// Computes decode rows, and prefill rows if DenseLinear does not support them.
void ApplySkinny(const Resources& resources, Tensor out, Tensor x, const Linear& w,
                 Epilogue epilogue) {
  const cudaStream_t stream = resources.stream;
  if (IsGelu(epilogue)) {
    ApplySkinny(resources, out, x, w, Epilogue::kStore);
    return ApplyGelu(stream, out, epilogue);
  }
  LinearArgs args = MakeLinearArgs(out, x, w, epilogue);
  switch (w.format().kind) {
    case WeightFormat::Kind::kF32:
      return ApplyF32(stream, args, w.out);
    case WeightFormat::Kind::kF16:
      return Apply16<Half>(stream, args, w.out, resources.num_sms);
    case WeightFormat::Kind::kBF16:
      return Apply16<BFloat16>(stream, args, w.out, resources.num_sms);
    case WeightFormat::Kind::kInt4:
    case WeightFormat::Kind::kInt8:
    case WeightFormat::Kind::kE4M3:
      if (w.format().numeric_type() == DType::kF32) return ApplyQuantizedF32(stream, args);
      return ApplyQuantized(stream, args, w.format(), w.out);
  }
}

}  // namespace

void Run(const Resources& resources, const ApplyArgs& args) {
  const Tensor &out = args.out, &x = args.x;
  const Linear& w = args.linear;
  const Epilogue epilogue = args.epilogue;
  const int64_t rows = x.rows(), decodes = std::min<int64_t>(rows, args.num_decode_rows);
  const cudaStream_t stream = resources.stream;
  const DenseLinear* dense = resources.dense;
  if (decodes == rows || dense == nullptr || !dense->Supports(out, x, w, epilogue)) {
    return ApplySkinny(resources, out, x, w, epilogue);
  }
  if (decodes > 0) {
    ApplySkinny(resources, out.Rows(0, decodes), x.Rows(0, decodes), w, epilogue);
  }
  dense->Apply(stream, out.Rows(decodes, rows), x.Rows(decodes, rows), w, epilogue);
}

}  // namespace kuiper::KU_GPU
