// Embed (also GatherRows), PatchRows, AddWeightedRows, GELU of a linear layer's output, and
// FillRandom. One thread per 8 elements, blocks of 128 threads over the columns of one row; 16-byte
// loads and stores if rows are aligned. Each input and output moves once. So a step of one token is
// bound by the launch, and long prefills by DRAM (about 90 % of copy bandwidth expected).
// FillRandom runs at load and only writes, 8 values per thread.
#include <array>
#include <atomic>
#include <iterator>

#include "kuiper/kernels/common/random_weight.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/linear_parts.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 128;

// Returns the table row of a batch entry; -1 if it has none.
__device__ __forceinline__ int32_t RowOf(int32_t row, const int32_t*, int) {
  return row;
}
__device__ __forceinline__ int32_t RowOf(TokenRef token, const int32_t* sampled, int num_sampled) {
  if (token.is_known()) return token.id();
  return token.row() < num_sampled ? sampled[token.row()] : -1;
}

// out[t] = table[ids[t]]. An entry without a valid table row gives NaN, which Sample's check
// reports.
template <typename Id>
__global__ void __launch_bounds__(kThreads)
    EmbedKernel(MatrixArg out, MatrixArg table, const Id* ids, const int32_t* sampled,
                int num_sampled, int64_t num_rows, int n) {
  AwaitEarlierKernels();
  const int64_t t = blockIdx.x;
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  if (i >= n) return;
  const int32_t id = RowOf(ids[t], sampled, num_sampled);
  float v[8];
  if (id >= 0 && id < num_rows) {
    LoadChunk(table.Row(id), table.dtype, table.vectors, i, n, v);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = __uint_as_float(0x7fc00000u);
  }
  StoreChunk(out.Row(t), out.dtype, out.vectors, i, n, v);
}

// out = x, or out += x.
template <bool kAdd>
__global__ void __launch_bounds__(kThreads) PatchRowsKernel(MatrixArg out, MatrixArg x, int n) {
  AwaitEarlierKernels();
  const int64_t row = blockIdx.x;
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  if (i >= n) return;
  float v[8];
  LoadChunk(x.Row(row), x.dtype, x.vectors, i, n, v);
  if constexpr (kAdd) {
    float sum[8];
    LoadChunk(out.Row(row), out.dtype, out.vectors, i, n, sum);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] += sum[j];
  }
  StoreChunk(out.Row(row), out.dtype, out.vectors, i, n, v);
}

// out[t] += the sum over j of weights[t][j] * table[rows[t][j]].
__global__ void __launch_bounds__(kThreads)
    AddWeightedRowsKernel(MatrixArg out, MatrixArg table, const int32_t* rows, const float* weights,
                          int count, int n) {
  AwaitEarlierKernels();
  const int64_t t = blockIdx.x;
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  if (i >= n) return;
  float sum[8] = {};
  for (int j = 0; j < count; ++j) {
    float v[8];
    LoadChunk(table.Row(rows[t * count + j]), table.dtype, table.vectors, i, n, v);
    const float weight = weights[t * count + j];
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = fmaf(weight, v[k], sum[k]);
  }
  float v[8];
  LoadChunk(out.Row(t), out.dtype, out.vectors, i, n, v);
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] += sum[k];
  StoreChunk(out.Row(t), out.dtype, out.vectors, i, n, v);
}

// out = gelu(out).
__global__ void __launch_bounds__(kThreads) GeluKernel(MatrixArg out, Epilogue epilogue, int n) {
  AwaitEarlierKernels();
  const int64_t t = blockIdx.x;
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  if (i >= n) return;
  float v[8];
  LoadChunk(out.Row(t), out.dtype, out.vectors, i, n, v);
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = GeluOf(epilogue, v[j]);
  StoreChunk(out.Row(t), out.dtype, out.vectors, i, n, v);
}

// A row of `out` is a group of values; the last group may be shorter.
__global__ void __launch_bounds__(kThreads)
    FillRandomKernel(MatrixArg out, int64_t count, uint64_t seed) {
  AwaitEarlierKernelsOnly();
  const int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t begin = group * kRandomGroup;
  if (begin >= count) return;
  const uint64_t random = SplitMix64(seed, static_cast<uint64_t>(group));
  float v[kRandomGroup];
#pragma unroll
  for (int i = 0; i < kRandomGroup; ++i) v[i] = RandomWeight(random, i);
  const int n = static_cast<int>(count - begin < kRandomGroup ? count - begin : kRandomGroup);
  StoreChunk(out.Row(group), out.dtype, out.vectors, 0, n, v);
}

dim3 GridOf(int64_t rows, int n) {
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(CeilDiv(n, kThreads * 8)));
}

}  // namespace

cudaError_t ProbeKernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, FillRandomKernel);
}

#if !defined(KUIPER_SIMT)
bool KernelsBeginEarly() {
  constexpr int kFirstVirtual = 90, kFirstDriver = 12030;  // first driver to capture these
  enum : signed char { kUnknown, kNo, kYes };
  static std::array<std::atomic<signed char>, 64> of_device{};
  int device = 0, driver = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= std::ssize(of_device)) return false;
  std::atomic<signed char>& answer = of_device[static_cast<size_t>(device)];
  if (answer.load(std::memory_order_relaxed) == kUnknown) {
    cudaFuncAttributes attributes{};
    const bool early = cudaFuncGetAttributes(&attributes, FillRandomKernel) == cudaSuccess &&
                       attributes.ptxVersion >= kFirstVirtual &&
                       cudaDriverGetVersion(&driver) == cudaSuccess && driver >= kFirstDriver;
    answer.store(early ? kYes : kNo, std::memory_order_relaxed);
  }
  return answer.load(std::memory_order_relaxed) == kYes;
}
#endif

void Run(const Resources& resources, const EmbedArgs& args) {
  const int n = static_cast<int>(args.out.shape[1]);
  Launch<EmbedKernel<TokenRef>>(
      GridOf(args.out.rows(), n), dim3(kThreads), 0, resources.stream, AsArg(args.out),
      AsArg(args.table), static_cast<const TokenRef*>(args.ids.data),
      static_cast<const int32_t*>(args.sampled.data),
      static_cast<int>(args.sampled.empty() ? 0 : args.sampled.numel()), args.table.rows(), n);
}

void Run(const Resources& resources, const GatherRowsArgs& args) {
  const int n = static_cast<int>(args.out.shape[1]);
  Launch<EmbedKernel<int32_t>>(
      GridOf(args.out.rows(), n), dim3(kThreads), 0, resources.stream, AsArg(args.out),
      AsArg(args.x), static_cast<const int32_t*>(args.rows.data), nullptr, 0, args.x.rows(), n);
}

void Run(const Resources& resources, const PatchRowsArgs& args) {
  const int n = static_cast<int>(args.out.shape[1]);
  const auto launch = [&]<bool kAdd>(std::bool_constant<kAdd>) {
    Launch<PatchRowsKernel<kAdd>>(GridOf(args.out.rows(), n), dim3(kThreads), 0, resources.stream,
                                  AsArg(args.out), AsArg(args.x), n);
  };
  if (args.add) {
    launch(std::true_type());
  } else {
    launch(std::false_type());
  }
}

void Run(const Resources& resources, const AddWeightedRowsArgs& args) {
  const int n = static_cast<int>(args.out.shape[1]);
  Launch<AddWeightedRowsKernel>(
      GridOf(args.out.rows(), n), dim3(kThreads), 0, resources.stream, AsArg(args.out),
      AsArg(args.table), static_cast<const int32_t*>(args.rows.data),
      static_cast<const float*>(args.weights.data), static_cast<int>(args.rows.shape[1]), n);
}

void ApplyGelu(cudaStream_t stream, const Tensor& out, Epilogue epilogue) {
  const int n = static_cast<int>(out.shape[1]);
  Launch<GeluKernel>(GridOf(out.rows(), n), dim3(kThreads), 0, stream, AsArg(out), epilogue, n);
}

void Run(const Resources& resources, const FillRandomArgs& args) {
  const Tensor& out = args.out;
  const int64_t count = out.numel();
  const int groups = CeilDiv(count, kRandomGroup);
  const Tensor rows = Tensor::Dense(out.data, out.dtype, {groups, kRandomGroup}, out.device);
  Launch<FillRandomKernel>(dim3(static_cast<unsigned>(CeilDiv(groups, kThreads))), dim3(kThreads),
                           0, resources.stream, AsArg(rows), count, args.seed);
}

}  // namespace kuiper::KU_GPU
