// QkNormRopeStore: one warp per head of one token; heads of queries, keys and values run in the
// same launch. Each lane holds pairs (i, i + D/2), so the rotation needs no exchange and the norm
// five shuffles. Keys and values are stored directly in the slot's page. StoreKv: one thread per 8
// elements of a token's keys and values, or one warp per row of a format with scales. All read
// their rows once (for formats with scales twice, the second time from L1). One token is bound by
// the launch, a prefill by DRAM.
#include "kuiper/base/check.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

struct RopeParams {
  MatrixArg q, k, v;
  MatrixArg q_norm, k_norm;  // data null: no norm
  int q_heads, kv_heads, head_dim, blocks_per_token;
  float eps;
  const float* cos_sin;  // [max_pos, head_dim]
  int64_t cos_sin_stride;
  const int32_t* axis_of_pair;  // [head_dim / 2]
  const int32_t* positions;     // [axes, T]
  int64_t positions_stride;
  const int32_t* slots;  // [T]
};

// kPairs: pairs per lane.
template <int kPairs, typename View>
__global__ void __launch_bounds__(kThreads)
    QkNormRopeStoreKernel(const __grid_constant__ RopeParams p, const __grid_constant__ View view) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t t = blockIdx.x / p.blocks_per_token;
  int head = static_cast<int>(blockIdx.x % p.blocks_per_token) * kWarps +
             static_cast<int>(threadIdx.x / kWarpSize);
  const int half = p.head_dim / 2;
  const bool is_query = head < p.q_heads;
  if (!is_query) head -= p.q_heads;
  const bool is_value = !is_query && head >= p.kv_heads;
  if (is_value) head -= p.kv_heads;
  const bool idle = is_value && head >= p.kv_heads;
  const MatrixArg& x = is_query ? p.q : is_value ? p.v : p.k;
  const MatrixArg& weight = is_query ? p.q_norm : p.k_norm;
  const bool normed = !is_value && weight.data != nullptr;
  char* row = x.Row(t);
  const int64_t first = static_cast<int64_t>(head) * p.head_dim;

  // Data that no kernel of a step writes is read before the wait. All loads are issued before any
  // result is used.
  float weight_a[kPairs], weight_b[kPairs], cosine[kPairs], sine[kPairs];
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + j * kWarpSize;
    weight_a[j] = normed && i < half ? LoadAny(weight.data, weight.dtype, i) : 1.0f;
    weight_b[j] = normed && i < half ? LoadAny(weight.data, weight.dtype, half + i) : 1.0f;
    cosine[j] = 1.0f;
    sine[j] = 0.0f;
    if (is_value || i >= half) continue;
    const int32_t pos = p.positions[p.axis_of_pair[i] * p.positions_stride + t];
    cosine[j] = p.cos_sin[pos * p.cos_sin_stride + i];
    sine[j] = p.cos_sin[pos * p.cos_sin_stride + half + i];
  }
  typename View::Row to{};
  if (!is_query && !idle) {
    const typename View::Row key = view.Slot(p.slots[t], head);
    to = is_value ? view.ValueOf(key) : key;
  }
  AwaitEarlierKernels();
  if (idle) return;
  float a[kPairs], b[kPairs];
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + j * kWarpSize;
    a[j] = i < half ? LoadAny(row, x.dtype, first + i) : 0.0f;
    b[j] = i < half ? LoadAny(row, x.dtype, first + half + i) : 0.0f;
  }
  if (normed) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      sum = fmaf(a[j], a[j], sum);
      sum = fmaf(b[j], b[j], sum);
    }
    const float mean = WarpSum(sum) / static_cast<float>(p.head_dim);
    const float scale = 1.0f / sqrtf(mean + p.eps);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      a[j] = a[j] * scale * weight_a[j];
      b[j] = b[j] * scale * weight_b[j];
    }
  }
  if (!is_value) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float low = a[j] * cosine[j] - b[j] * sine[j];
      const float high = b[j] * cosine[j] + a[j] * sine[j];
      a[j] = low;
      b[j] = high;
    }
  }
  if (!is_query) {
    StoreHead(to, half, lane, a, b);
    return;
  }
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + j * kWarpSize;
    if (i >= half) continue;
    StoreAny(row, x.dtype, first + i, a[j]);
    StoreAny(row, x.dtype, first + half + i, b[j]);
  }
}

struct StoreParams {
  MatrixArg k, v;
  bool vectors;  // heads are 16-byte aligned in k and v
  const int32_t* slots;
  int kv_heads, head_dim, chunks_per_head;
};

template <typename View>
__global__ void __launch_bounds__(kThreads)
    StoreKvKernel(const __grid_constant__ StoreParams p, const __grid_constant__ View view) {
  AwaitEarlierKernels();
  const int64_t t = blockIdx.x;
  const int chunk = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  const int head = chunk / p.chunks_per_head;
  if (head >= p.kv_heads) return;
  const int i = chunk % p.chunks_per_head * 8;
  const typename View::Row key = view.Slot(p.slots[t], head);
  const int in_bytes = p.k.dtype == DType::kF32 ? 4 : 2;
  const int64_t offset = static_cast<int64_t>(head) * p.head_dim * in_bytes;
  const bool out_vectors = p.head_dim % 8 == 0;
  float v[8];
  LoadChunk(p.k.Row(t) + offset, p.k.dtype, p.vectors, i, p.head_dim, v);
  StoreChunk(key, out_vectors, i, p.head_dim, v);
  LoadChunk(p.v.Row(t) + offset, p.v.dtype, p.vectors, i, p.head_dim, v);
  StoreChunk(view.ValueOf(key), out_vectors, i, p.head_dim, v);
}

// The keys and the values of each kv head alternate; each gets one warp.
template <typename View>
__global__ void __launch_bounds__(kThreads)
    StoreScaledKvKernel(const __grid_constant__ StoreParams p, const __grid_constant__ View view) {
  AwaitEarlierKernels();
  const int64_t t = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int index =
      static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarpSize;
  const int head = index / 2;
  if (head >= p.kv_heads) return;
  const typename View::Row key = view.Slot(p.slots[t], head);
  const bool is_value = index % 2 != 0;
  const typename View::Row row = is_value ? view.ValueOf(key) : key;
  const MatrixArg& x = is_value ? p.v : p.k;
  const char* from = x.Row(t);
  const int64_t first = static_cast<int64_t>(head) * p.head_dim;
  uint32_t max = 0;
  for (int i = lane; i < p.head_dim; i += kWarpSize) {
    const uint32_t bits = MagnitudeBits(LoadAny(from, x.dtype, first + i));
    max = max > bits ? max : bits;
  }
  const CodeScale scale = CodeScaleOf(WarpMax(max), kMaxInt8);
  for (int i = lane; i < p.head_dim; i += kWarpSize) {
    row.data[i] = NarrowInt8(LoadAny(from, x.dtype, first + i), scale.inverse);
  }
  if (lane == 0) *row.scale = scale.scale;
}

}  // namespace

void Run(const Resources& resources, const QkNormRopeStoreArgs& args) {
  const Tensor& cos_sin = args.rope.cos_sin;
  RopeParams p{};
  p.head_dim = static_cast<int>(cos_sin.shape[1]);
  KU_CHECK(p.head_dim <= kMaxHeadDim, "head_dim is too large");
  p.q = AsArg(args.q);
  p.k = AsArg(args.store.k);
  p.v = AsArg(args.store.v);
  if (!args.q_norm.empty()) {
    p.q_norm = AsArg(args.q_norm);
    p.k_norm = AsArg(args.k_norm);
  }
  p.q_heads = static_cast<int>(args.q.shape[1]) / p.head_dim;
  p.kv_heads = args.store.kv.kv_heads;
  p.blocks_per_token = CeilDiv(p.q_heads + 2 * p.kv_heads, kWarps);
  p.eps = args.eps;
  p.cos_sin = static_cast<const float*>(cos_sin.data);
  p.cos_sin_stride = cos_sin.stride[0];
  p.axis_of_pair = static_cast<const int32_t*>(args.rope.axis_of_pair.data);
  p.positions = static_cast<const int32_t*>(args.positions.data);
  p.positions_stride = args.positions.stride[0];
  p.slots = static_cast<const int32_t*>(args.store.slots.data);
  const dim3 grid(static_cast<unsigned>(args.q.rows() * p.blocks_per_token));
  VisitKv(args.store.kv, [&](const auto& view) {
    using View = std::remove_cv_t<std::remove_reference_t<decltype(view)>>;
    // 2 pairs per lane suffice for head_dim 128, 8 for kMaxHeadDim.
    if (p.head_dim <= 4 * kWarpSize) {
      Launch<QkNormRopeStoreKernel<2, View>>(grid, dim3(kThreads), 0, resources.stream, p, view);
    } else {
      Launch<QkNormRopeStoreKernel<8, View>>(grid, dim3(kThreads), 0, resources.stream, p, view);
    }
  });
}

void Run(const Resources& resources, const StoreKvArgs& args) {
  StoreParams p{};
  p.k = AsArg(args.k);
  p.v = AsArg(args.v);
  p.kv_heads = args.kv.kv_heads;
  p.head_dim = args.kv.head_dim();
  p.vectors = p.k.vectors && p.v.vectors && p.head_dim % 8 == 0;
  p.slots = static_cast<const int32_t*>(args.slots.data);
  p.chunks_per_head = CeilDiv(p.head_dim, 8);
  const dim3 grid(static_cast<unsigned>(args.k.rows()),
                  static_cast<unsigned>(CeilDiv(p.kv_heads * p.chunks_per_head, kThreads)));
  const dim3 warps(grid.x, static_cast<unsigned>(CeilDiv(2 * p.kv_heads, kWarps)));
  VisitKv(args.kv, [&](const auto& view) {
    using View = std::remove_cv_t<std::remove_reference_t<decltype(view)>>;
    if constexpr (View::Row::kHasScale) {
      Launch<StoreScaledKvKernel<View>>(warps, dim3(kThreads), 0, resources.stream, p, view);
    } else {
      Launch<StoreKvKernel<View>>(grid, dim3(kThreads), 0, resources.stream, p, view);
    }
  });
}

}  // namespace kuiper::KU_GPU
