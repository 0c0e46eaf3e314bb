// Attention over paged or contiguous KV with FP32 arithmetic on the CUDA cores
// (AttentionKind::kFlash1). One kernel computes decode and prefill; attention_work.cuh divides its
// work. Within a split the softmax is plain. Decode and prefill of a row give the same bits. The
// scale of a key multiplies its finished score, that of a value its weight.
//
// A block is 128 threads and up to 8 rows that share a kv head (query heads of the group times
// positions). So keys and values are read once for all of them. The steps of a split are:
//   * Find the addresses of the rows, one table look-up per token.
//   * Compute scores, one thread per key and row, from key tiles copied to shared memory by
//     two-stage cp.async.
//   * Compute the softmax, one warp per row.
//   * Add values, 16 bytes per thread directly from DRAM. Token t of the split goes to thread group
//     t mod groups; the groups are summed in ascending order.
//
// Decode moves each key and value once: bound by DRAM, 60 to 75 % expected from 4k tokens on (GQA
// up to 4; above, bound by FMA and shared memory). Prefill reads the keys again for every 8 rows
// and runs at a tenth of the tensor cores' rate.
#include "kuiper/base/check.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cuda/async_copy.cuh"
#include "kuiper/kernels/cuda/attention_partials.cuh"
#include "kuiper/kernels/cuda/launch.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = kAttnThreads;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kResident = 4;     // maximum blocks of an SM; shared memory may allow fewer
constexpr size_t kStaticBytes =  // static shared memory of FlashKernel
    (kThreads + kMaxBlockSeqs) * sizeof(int) + sizeof(AttnItem);
// Holds both stages of a key tile, or partial outputs of 128 threads with 8 values. Four rows of
// such outputs fit; two if elements are bytes, because their KvRow may need more memory.
template <typename T>
constexpr int kTileBytes = (sizeof(T) == 1 ? 9 : 17) << 10;
template <typename T>
constexpr int kReduceRows = kTileBytes<T> / (kThreads * 8 * static_cast<int>(sizeof(float)));
static_assert(kReduceRows<float> == 4 && kReduceRows<int8_t> == 2);

struct FlashParams {
  AttnWork work;
  int tile_keys;  // keys of one stage, a power of two
};

// Floats between queries. If a tile has fewer keys than a warp has lanes, the warp reads several
// queries at a time; the padding puts these into different banks.
KU_HOST_DEVICE int QueryPitch(int head_dim) {
  return head_dim + 4;
}

// Shared memory of a block, in this order.
template <typename T, int kRows>
struct FlashMemory {
  char* tile;        // [2][tile_keys][pitch] keys; also partial outputs
  KvRow<T>* keys;    // [kMaxSplit] addresses of the split's tokens
  float* scores;     // [kRows][kMaxSplit]
  float* q;          // [kRows][QueryPitch(head_dim)], scaled
  float* out;        // [kRows][head_dim], of the splits merged so far
  float* split_max;  // [kRows], of the current split
  float* split_sum;  // [kRows]
  float* max;        // [kRows] merged so far
  float* sum;        // [kRows]
  KeyRange* own;     // [kRows] tokens of the split that the row attends to

  __device__ FlashMemory(char* base, int head_dim) {
    tile = base;
    keys = reinterpret_cast<KvRow<T>*>(base + kTileBytes<T>);
    scores = reinterpret_cast<float*>(keys + kMaxSplit);
    q = scores + kRows * kMaxSplit;
    out = q + kRows * QueryPitch(head_dim);
    split_max = out + kRows * head_dim;
    split_sum = split_max + kRows;
    max = split_sum + kRows;
    sum = max + kRows;
    own = reinterpret_cast<KeyRange*>(sum + kRows);
  }
  static size_t Bytes(int head_dim) {
    return kTileBytes<T> + kMaxSplit * sizeof(KvRow<T>) +
           sizeof(float) * kRows *
               (kMaxSplit + static_cast<size_t>(QueryPitch(head_dim) + head_dim) + 6);
  }
};

// Bytes between the keys of a tile: one vector more than a key, so that the keys of neighbouring
// threads are in different banks.
template <typename T>
KU_HOST_DEVICE int KeyPitch(int head_dim) {
  return head_dim * static_cast<int>(sizeof(T)) + kVectorBytes<T>;
}

// The keys of a split that a block needs: tokens [first, count), counted from the split's begin.
struct SplitKeys {
  int begin, first, count;
};

// Copies keys [begin, begin + p.tile_keys) of the split to a stage of the tile.
template <typename T, int kVec>
__device__ __forceinline__ void LoadKeys(const FlashParams& p, char* stage, const KvRow<T>* keys,
                                         int begin, int count) {
  const int head_dim = p.work.head_dim;
  const int chunks = head_dim / kVec;
  const int pitch = KeyPitch<T>(head_dim);
  for (int i = static_cast<int>(threadIdx.x); i < p.tile_keys * chunks; i += kThreads) {
    const int key = i / chunks, chunk = i % chunks;
    if (begin + key >= count) break;
    char* to = stage + key * pitch + chunk * kVec * static_cast<int>(sizeof(T));
    const T* from = (keys[begin + key] + chunk * kVec).data;
    if constexpr (kVec == kVector<T>) {
      CopyAsync<kVectorBytes<T>>(to, from);
    } else {
#pragma unroll
      for (int j = 0; j < kVec; ++j) reinterpret_cast<T*>(to)[j] = from[j];
    }
  }
}

// scores[r][j] = q_r . k_j (+ ALiBi) for the tokens of the split, as two running sums of the even
// and the odd elements.
template <typename T, int kVec, int kRows>
__device__ __forceinline__ void ComputeScores(const FlashParams& p, const FlashMemory<T, kRows>& m,
                                              const AttnItem& item, const SplitKeys& split) {
  const int head_dim = p.work.head_dim;
  const int pitch = KeyPitch<T>(head_dim);
  const int stage_bytes = p.tile_keys * pitch;
  const int tiles = (split.count - split.first + p.tile_keys - 1) / p.tile_keys;
  LoadKeys<T, kVec>(p, m.tile, m.keys, split.first, split.count);
  CommitCopies();
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      LoadKeys<T, kVec>(p, m.tile + (t + 1) % 2 * stage_bytes, m.keys,
                        split.first + (t + 1) * p.tile_keys, split.count);
    }
    CommitCopies();
    WaitCopies<1>();
    __syncthreads();
    const char* stage = m.tile + t % 2 * stage_bytes;
    for (int i = static_cast<int>(threadIdx.x); i < p.tile_keys * item.rows(); i += kThreads) {
      const int key = i & (p.tile_keys - 1), r = i / p.tile_keys;
      const int j = split.first + t * p.tile_keys + key;
      if (j >= split.count) continue;
      const T* k = reinterpret_cast<const T*>(stage + key * pitch);
      const float* q = m.q + r * QueryPitch(head_dim);
      float even = 0.0f, odd = 0.0f;
      for (int c = 0; c < head_dim; c += kVec) {
        float v[kVec];
        LoadValues(k + c, v);
#pragma unroll
        for (int e = 0; e < kVec; e += 2) {
          even = fmaf(q[c + e], v[e], even);
          odd = fmaf(q[c + e + 1], v[e + 1], odd);
        }
      }
      float score = even + odd;
      if constexpr (KvRow<T>::kIsScaled) score *= m.keys[j].Scale();
      if (p.work.mask.slopes != nullptr) {
        const int distance = split.begin + j - item.pos(r);
        score = fmaf(p.work.mask.Slope(item.head(r)), static_cast<float>(distance), score);
      }
      m.scores[r * kMaxSplit + j] = score;
    }
    __syncthreads();
  }
}

// Converts scores to weights exp2(score - max), times the value's scale if there is one; one warp
// per row. Tokens that the row does not attend to are skipped.
template <typename View, int kRows>
__device__ __forceinline__ void Softmax(const FlashParams& p,
                                        const FlashMemory<typename View::Element, kRows>& m,
                                        const View& view, const AttnItem& item,
                                        const SplitKeys& split) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int r = static_cast<int>(threadIdx.x) / kWarpSize; r < item.rows(); r += kWarps) {
    float* scores = m.scores + r * kMaxSplit;
    KeyRange own = p.work.mask.Keys(item.pos(r), item.kv_len);
    own.begin = own.begin - split.begin > split.first ? own.begin - split.begin : split.first;
    own.end = own.end - split.begin < split.count ? own.end - split.begin : split.count;
    // Token j belongs to lane j mod 32, whatever the first token is.
    const int begin = split.first - split.first % kWarpSize + lane;
    float max = -INFINITY;
    for (int j = begin; j < own.end; j += kWarpSize) {
      if (j >= own.begin) max = fmaxf(max, scores[j]);
    }
    max = WarpMax(max);
    float sum = 0.0f;
    for (int j = begin; j < split.count; j += kWarpSize) {
      if (j < own.begin || j >= own.end) continue;
      const float weight = exp2f(scores[j] - max);
      sum += weight;
      if constexpr (View::Row::kIsScaled) {
        scores[j] = weight * view.ValueOf(m.keys[j]).Scale();
      } else {
        scores[j] = weight;
      }
    }
    sum = WarpSum(sum);
    if (lane == 0) {
      m.split_max[r] = max;
      m.split_sum[r] = sum;
      m.own[r] = own;
    }
  }
}

// Calls consume(r, i, output) for element i of each row r, where output is the weighted sum of the
// split's values.
template <typename View, int kVec, int kRows, typename F>
__device__ __forceinline__ void WeightValues(const FlashParams& p,
                                             const FlashMemory<typename View::Element, kRows>& m,
                                             const View& view, int rows, const SplitKeys& split,
                                             const F& consume) {
  const int head_dim = p.work.head_dim;
  const int lanes = head_dim / kVec;  // threads that share a token
  const int groups = kThreads / lanes;
  const int tid = static_cast<int>(threadIdx.x);
  const int group = tid / lanes, at = tid % lanes * kVec;
  float acc[kRows][kVec] = {};
  if (group < groups) {
    int begin[kRows];
    unsigned own[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      begin[r] = r < rows ? m.own[r].begin : 0;
      const int count = r < rows ? m.own[r].end - begin[r] : 0;
      own[r] = count > 0 ? static_cast<unsigned>(count) : 0u;
    }
    int j = split.first - split.first % groups + group;
    if (j < split.first) j += groups;
#pragma unroll 2
    for (; j < split.count; j += groups) {
      float v[kVec];
      LoadValues(view.ValueOf(m.keys[j]), at, v);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        // A row skips tokens that it does not attend to: 0 * NaN would not be 0.
        if (static_cast<unsigned>(j - begin[r]) < own[r]) {
          const float weight = m.scores[r * kMaxSplit + j];
#pragma unroll
          for (int e = 0; e < kVec; ++e) acc[r][e] = fmaf(weight, v[e], acc[r][e]);
        }
      }
    }
  }
  // groups * head_dim <= 128 * kVec floats per row: at most kFit rows fit the tile at a time.
  constexpr int kFit = kReduceRows<typename View::Element>;
  constexpr int kStep = kRows < kFit ? kRows : kFit;
  float* reduce = reinterpret_cast<float*>(m.tile);
#pragma unroll
  for (int first = 0; first < kRows; first += kStep) {
    if (first >= rows) break;
    __syncthreads();
    if (group < groups) {
#pragma unroll
      for (int s = 0; s < kStep; ++s) {
        float* const to = reduce + (s * groups + group) * head_dim + at;
        const float(&from)[kVec] = acc[first + s];
        // Neighbouring threads write kVec floats apart; single floats would cause bank conflicts.
        if constexpr (kVec % 4 == 0) {
#pragma unroll
          for (int e = 0; e < kVec; e += 4) {
            *reinterpret_cast<float4*>(to + e) =
                make_float4(from[e], from[e + 1], from[e + 2], from[e + 3]);
          }
        } else {
#pragma unroll
          for (int e = 0; e < kVec; ++e) to[e] = from[e];
        }
      }
    }
    __syncthreads();
    const int left = rows - first < kStep ? rows - first : kStep;
    for (int n = tid; n < left * head_dim; n += kThreads) {
      const int s = n / head_dim, i = n % head_dim;
      float sum = reduce[s * groups * head_dim + i];
      for (int g = 1; g < groups; ++g) sum += reduce[(s * groups + g) * head_dim + i];
      consume(first + s, i, sum);
    }
  }
}

template <typename View, int kVec, int kRows>
__global__ void __launch_bounds__(kThreads, kResident)
    FlashKernel(const __grid_constant__ FlashParams p, const __grid_constant__ View view) {
  using T = typename View::Element;
  KU_DYNAMIC_SHARED(char, base);
  KU_SHARED(counts, int[kThreads]);
  KU_SHARED(is_last, int[kMaxBlockSeqs]);
  KU_SHARED(shared_item, AttnItem);  // registers are scarce
  AwaitEarlierKernels();
  const AttnWork& w = p.work;
  const FlashMemory<T, kRows> m(base, w.head_dim);
  const int tid = static_cast<int>(threadIdx.x);
  const AttnItem& item = shared_item;
  AttnItemList items(w, counts);
  AttnItem found;
  for (int index = static_cast<int>(blockIdx.y); items.Find(index, &found);
       index += static_cast<int>(gridDim.y)) {
    __syncthreads();  // the previous item is finished
    if (tid == 0) shared_item = found;
    __syncthreads();
    const int rows = item.rows();
    for (int n = tid; n < rows * w.head_dim; n += kThreads) {
      const int r = n / w.head_dim, i = n % w.head_dim;
      const int64_t at = item.head(r) * w.q_head_stride + i;
      m.q[r * QueryPitch(w.head_dim) + i] =
          LoadAny(w.q.Row(item.q_row + r / item.heads), w.q.dtype, at) * w.scale_log2e;
      m.out[n] = 0.0f;
    }
    if (tid < rows) {
      m.max[tid] = -INFINITY;
      m.sum[tid] = 0.0f;
    }
    for (int s = item.first_split(); s < item.end_split(); ++s) {
      const KeyRange range = item.KeysOf(s, s + 1);
      const SplitKeys split{SplitBegin(s), range.begin - SplitBegin(s), range.end - SplitBegin(s)};
      for (int j = split.first + tid; j < split.count; j += kThreads) {
        m.keys[j] = view.Key(item.seq, split.begin + j, item.kv_head);
      }
      __syncthreads();
      ComputeScores<T, kVec, kRows>(p, m, item, split);
      Softmax(p, m, view, item, split);
      __syncthreads();
      if (item.split >= 0) {
        WeightValues<View, kVec, kRows>(p, m, view, rows, split, [&](int r, int i, float x) {
          Partial(w, item, r, s)[kPartialState + i] = x;
        });
        if (tid < rows) {
          float* partial = Partial(w, item, tid, s);
          partial[0] = m.split_max[tid];
          partial[1] = m.split_sum[tid];
        }
        continue;
      }
      WeightValues<View, kVec, kRows>(p, m, view, rows, split, [&](int r, int i, float x) {
        if (m.own[r].begin >= m.own[r].end) return;
        const MergeFactors f = Merge(m.max[r], m.split_max[r]);
        float& out = m.out[r * w.head_dim + i];
        out = fmaf(x, f.new_scale, out * f.old_scale);
      });
      __syncthreads();
      if (tid < rows && m.own[tid].begin < m.own[tid].end) {
        const MergeFactors f = Merge(m.max[tid], m.split_max[tid]);
        m.sum[tid] = fmaf(m.split_sum[tid], f.new_scale, m.sum[tid] * f.old_scale);
        m.max[tid] = f.max;
      }
      __syncthreads();
    }
    if (item.split >= 0) {
      FinishSplits<kVec % 4 == 0 ? 4 : 2>(w, item, items.runs(), is_last);
      continue;
    }
    for (int n = tid; n < rows * w.head_dim; n += kThreads) {
      const int r = n / w.head_dim;
      StoreOutput(w, item, r, n % w.head_dim, Output(m.out[n], 1.0f / m.sum[r]));
    }
  }
}

// Maximum rows of a block: its scores, queries and outputs must fit into 48 KB of shared memory.
int MaxRows(int head_dim) {
  return head_dim <= 128 ? 8 : head_dim <= 256 ? 4 : 2;
}

template <int kVec, int kRows, typename View>
void LaunchFlash(const Resources& resources, const AttnCall& call, const View& view) {
  using T = typename View::Element;
  const int head_dim = call.head_dim;
  const size_t bytes = FlashMemory<T, kRows>::Bytes(head_dim);
  dim3 grid;
  FlashParams p{PlanAttention(resources, call, kRows, kResident, bytes + kStaticBytes, &grid), 32};
  while (2 * p.tile_keys * KeyPitch<T>(head_dim) > kTileBytes<T>) p.tile_keys /= 2;
  KU_CHECK(p.tile_keys >= 1);
  Launch<FlashKernel<View, kVec, kRows>>(grid, dim3(kThreads), bytes, resources.stream, p, view);
}

}  // namespace

int NumAttentionSplits(int len) {
  return NumSplits(len);
}

void AttentionFlash(const Resources& resources, const AttnCall& call, const KvView& kv) {
  const int head_dim = call.head_dim;
  KU_CHECK(head_dim <= kMaxHeadDim && head_dim % 2 == 0 && (head_dim % 8 == 0 || head_dim <= 256),
           "head_dim " + std::to_string(head_dim) + " is not supported");
  const bool vectors = head_dim % 8 == 0;
  // Bits do not depend on the rows of a block, so rare head sizes have only one kernel. Rows beyond
  // the group's heads are used only by shared splits.
  int rows = vectors ? MaxRows(head_dim) : 2;
  const bool shares = call.shared_lens != nullptr;
  while (call.max_q_len == 1 && !shares && rows > 2 && rows / 2 >= call.group) rows /= 2;
  VisitKv(kv, [&](const auto& view) {
    using T = typename std::remove_cv_t<std::remove_reference_t<decltype(view)>>::Element;
    if (!vectors) return LaunchFlash<2, 2>(resources, call, view);
    if (rows == 8) return LaunchFlash<kVector<T>, 8>(resources, call, view);
    if (rows == 4) return LaunchFlash<kVector<T>, 4>(resources, call, view);
    return LaunchFlash<kVector<T>, 2>(resources, call, view);
  });
}

AttentionKind ChosenAttention(AttentionKind asked, DType activations, KvFormat kv, int head_dim) {
  if (asked == AttentionKind::kMha || head_dim > kMaxHeadDim) return AttentionKind::kMha;
  const bool on_tensor_cores =
      asked != AttentionKind::kFlash1 && CanAttentionMma(activations, kv, head_dim);
  return on_tensor_cores ? AttentionKind::kFlash2 : AttentionKind::kFlash1;
}

void Run(const Resources& resources, const AttentionArgs& args) {
  const AttnMeta& meta = args.meta;
  KU_CHECK(meta.max_kv_len <= resources.limits.max_context, "more than was reserved");
  AttnCall call{};
  call.out = AsArg(args.out);
  call.q = AsArg(args.q);
  call.q_head_stride = args.QHeadStride();
  if (call.q_head_stride * static_cast<int64_t>(DTypeBytes(args.q.dtype)) % 16 != 0) {
    call.q.vectors = false;
  }
  call.cu_q = static_cast<const int32_t*>(meta.cu_seqlens_q.data);
  call.kv_lens = static_cast<const int32_t*>(meta.kv_lens.data);
  call.shared_lens = static_cast<const int32_t*>(meta.shared_lens.data);
  call.rows = static_cast<int>(args.q.rows());
  call.num_seqs = meta.num_seqs;
  call.max_q_len = meta.max_q_len;
  call.appends = meta.appends;
  call.max_kv_len = meta.max_kv_len;
  call.head_dim = args.kv.head_dim();
  call.heads = static_cast<int>(args.q.shape[1]) / call.head_dim;
  call.kv_heads = args.kv.kv_heads;
  call.group = call.heads / call.kv_heads;
  call.mask = {args.options.causal, args.options.window,
               static_cast<const float*>(args.options.alibi_slopes.data)};
  call.scale_log2e = args.scale * kLog2E;
  switch (ChosenAttention(resources.attention, args.q.dtype, args.kv.format, call.head_dim)) {
    case AttentionKind::kMha:
      return AttentionMha(resources, call, args.kv);
    case AttentionKind::kFlash1:
      return AttentionFlash(resources, call, args.kv);
    case AttentionKind::kFlash2:
      return AttentionMma(resources, call, args.kv);
    case AttentionKind::kAuto:
      break;
  }
  KU_CHECK(false, "no kernel was chosen");
}

}  // namespace kuiper::KU_GPU
