// The reference attention (AttentionKind::kMha): one block of 128 threads per query row and head,
// plain two-pass softmax. The first pass finds the largest score. The second computes the scores
// again and sums the values. One thread computes one score along head_dim in ascending order.
// Values are summed in the order of their positions; the sum of the exponentials is a fixed
// reduction tree over 128 lanes. So the bits depend only on the row's own length. Every query row
// reads its keys twice and its values once, with a stride of one row per key. This reaches a small
// fraction of DRAM bandwidth; the kernel exists for comparison.
#include "kuiper/base/check.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cuda/attention_call.cuh"
#include "kuiper/kernels/cuda/launch.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 128;
// Blocks per multiprocessor, with 64 registers per thread. Without this bound ptxas aims at 40 for
// some types, and spills.
constexpr int kMinBlocks = 8;

// q . key + slope * distance, in the scale of exp2.
template <typename Row>
__device__ __forceinline__ float Score(const float* q, Row key, int head_dim, float slope,
                                       int distance) {
  float sum = 0.0f;
  for (int i = 0; i < head_dim; ++i) sum = fmaf(q[i], LoadElement(key, i), sum);
  if constexpr (Row::kIsScaled) sum *= key.Scale();
  return fmaf(slope, static_cast<float>(distance), sum);
}

template <typename View>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    MhaKernel(const __grid_constant__ AttnCall p, const __grid_constant__ View view) {
  using Row = typename View::Row;
  KU_SHARED(q, float[kMaxMhaHeadDim]);
  KU_SHARED(weight, float[kThreads]);
  KU_SHARED(value, Row[kThreads]);
  KU_SHARED(shared, float[kWarpSize]);
  AwaitEarlierKernels();
  const int tid = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x) / p.heads;
  const int head = static_cast<int>(blockIdx.x) % p.heads;
  const int kv_head = head / p.group;
  int seq = 0;
  for (int end = p.num_seqs; end - seq > 1;) {
    const int middle = (seq + end) / 2;
    (p.cu_q[middle] <= row ? seq : end) = middle;
  }
  // Rows past the last sequence are padding.
  if (row >= p.cu_q[seq + 1]) return;
  const int pos = p.kv_lens[seq] - (p.cu_q[seq + 1] - row);
  const KeyRange keys = p.mask.Keys(pos, p.kv_lens[seq]);
  const float slope = p.mask.slopes == nullptr ? 0.0f : p.mask.Slope(head);
  const int64_t first = static_cast<int64_t>(head) * p.head_dim;
  for (int i = tid; i < p.head_dim; i += kThreads) {
    q[i] = LoadAny(p.q.Row(row), p.q.dtype, head * p.q_head_stride + i) * p.scale_log2e;
  }
  __syncthreads();

  float max = -INFINITY;
  for (int k = keys.begin + tid; k < keys.end; k += kThreads) {
    max = fmaxf(max, Score(q, view.Key(seq, k, kv_head), p.head_dim, slope, k - pos));
  }
  max = BlockMax(max, shared);

  constexpr int kPerThread = kMaxMhaHeadDim / kThreads;
  float acc[kPerThread] = {}, sum = 0.0f;
  for (int tile = keys.begin; tile < keys.end; tile += kThreads) {
    const int count = keys.end - tile < kThreads ? keys.end - tile : kThreads;
    __syncthreads();
    if (tid < count) {
      const Row key = view.Key(seq, tile + tid, kv_head);
      weight[tid] = exp2f(Score(q, key, p.head_dim, slope, tile + tid - pos) - max);
      value[tid] = view.ValueOf(key);
      sum += weight[tid];
      if constexpr (Row::kIsScaled) weight[tid] *= value[tid].Scale();
    }
    __syncthreads();
    for (int j = 0; j < count; ++j) {
      const Row v = value[j];
#pragma unroll
      for (int n = 0; n < kPerThread; ++n) {
        const int i = tid + n * kThreads;
        if (i < p.head_dim) acc[n] = fmaf(weight[j], LoadElement(v, i), acc[n]);
      }
    }
  }
  sum = BlockSum(sum, shared);
#pragma unroll
  for (int n = 0; n < kPerThread; ++n) {
    const int i = tid + n * kThreads;
    if (i < p.head_dim) StoreAny(p.out.Row(row), p.out.dtype, first + i, acc[n] / sum);
  }
}

}  // namespace

void AttentionMha(const Resources& resources, const AttnCall& call, const KvView& kv) {
  KU_CHECK(call.head_dim <= kMaxMhaHeadDim, "head_dim is too large");
  const dim3 grid(static_cast<unsigned>(call.rows * call.heads));
  VisitKv(kv, [&](const auto& view) {
    using View = std::remove_cv_t<std::remove_reference_t<decltype(view)>>;
    Launch<MhaKernel<View>>(grid, dim3(kThreads), 0, resources.stream, call, view);
  });
}

}  // namespace kuiper::KU_GPU
