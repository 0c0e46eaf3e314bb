// Attention over paged or contiguous KV on tensor cores (AttentionKind::kFlash2) for queries in
// FP16 and BF16: FlashAttention-2 (Dao 2023), decode and prefill in one kernel, which divides its
// work as attention_work.cuh says. Heads of 72 run as heads of 80 whose last columns are zeros.
// Instantiated in attention_mma.cu and attention_mma_bytes.cu.
//
// A block is 4 warps and up to 64 rows that share a kv head: all query heads of the group at as
// many positions as fit, so keys and values are read once for all of them. A warp owns 16 rows,
// whose outputs and softmax state stay in registers; a warp without rows, as in decode, only
// copies. Keys come in tiles of 64 that start at multiples of 64. Keys and values of the tiles go
// through a ring of three stages filled by cp.async: while one is used, the next two are on their
// way; addresses are looked up two tiles ahead. Codes of one byte (INT8, E4M3) become elements of
// the queries' type on their way there, value times scale rounded once. Scores are FP32 (mma
// m16n8k16), the softmax is online over the tiles of a split, weights are rounded to the element
// type for the second product while their sum is not.
//
// A row sees each tile as the same 64 columns, and a tile in which it sees nothing changes none of
// its bits. So they depend on the row's own position and length only: decode == prefill, chunked ==
// whole, any batch, any page size. Tokens that no row of the block sees are not read and count as
// zeros; a token that some rows see has weight 0 in the others, which a NaN or infinity among its
// values defeats.
//
// Prefill moves keys and values once for every 64 rows and is bound by the tensor cores, 45 to 55 %
// of their rate expected; decode moves each key and value once and is bound by DRAM.
#pragma once

#include "kuiper/kernels/cuda/attention_mma_tiles.cuh"
#include "kuiper/kernels/cuda/attention_partials.cuh"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/mma.cuh"

namespace kuiper::KU_GPU {

namespace mma {

// The row of the block that is row g + 8 * h of a warp, as lanes hold them in the fragments of
// mma.cuh. Rows behind the block's last one stand for it.
__device__ __forceinline__ int RowOf(const AttnItem& item, int warp, int g, int h) {
  const int r = 16 * warp + 8 * h + g, last = item.rows() - 1;
  return r < last ? r : last;
}

// The tokens that some and that all rows of a warp see.
struct WarpKeys {
  KeyRange some, all;
};

__device__ __forceinline__ WarpKeys FindWarpKeys(const AttnWork& w, const AttnItem& item,
                                                 int warp) {
  const KeyRange first = w.mask.Keys(item.pos(RowOf(item, warp, 0, 0)), item.kv_len);
  const KeyRange last = w.mask.Keys(item.pos(RowOf(item, warp, 7, 1)), item.kv_len);
  return {{first.begin, last.end}, {last.begin, first.end}};
}

// Output and softmax state of both rows: out / sum is the result.
template <int kHeadDim>
struct RowState {
  float out[kHeadDim / 8][4];
  float max[2];
  float sum[2];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] = 0.0f;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      max[h] = -INFINITY;
      sum[h] = 0.0f;
    }
  }
};

// s = q k^T of a tile; `q` is the first of the warp's rows.
template <typename T, int kHeadDim>
__device__ __forceinline__ void ComputeScores(const char* q, const char* keys, int lane,
                                              float (&s)[kColumns][4]) {
  q += lane % 16 * kPitch<kHeadDim> + lane / 16 * 16;
  keys += (lane / 16 * 8 + lane % 8) * kPitch<kHeadDim> + lane / 8 % 2 * 16;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t a[4];
    LoadMatrix(a, q + k * 32);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      uint32_t b[4];
      LoadMatrix(b, keys + n * 8 * kPitch<kHeadDim> + k * 32);
      Mma<T>(s[n], a, {b[0], b[1]});
      Mma<T>(s[n + 1], a, {b[2], b[3]});
    }
  }
}

// Scores to the scale of exp2, with ALiBi; -infinity where a row does not see the key.
__device__ __forceinline__ void MaskScores(const AttnWork& w, const AttnItem& item,
                                           const KeyRange& all, int warp, int lane, int begin,
                                           float (&s)[kColumns][4]) {
  const int first_key = begin + lane % 4 * 2;  // of s[0][0]
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] *= w.scale_log2e;
  }
  if (w.mask.slopes != nullptr) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = RowOf(item, warp, lane / 4, h), pos = item.pos(r);
      const float slope = w.mask.Slope(item.head(r));
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int distance = first_key + 8 * n + j - pos;
          s[n][2 * h + j] = fmaf(slope, static_cast<float>(distance), s[n][2 * h + j]);
        }
      }
    }
  }
  if (begin >= all.begin && begin + kTile <= all.end) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const KeyRange keys = w.mask.Keys(item.pos(RowOf(item, warp, lane / 4, h)), item.kv_len);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = first_key + 8 * n + j;
        if (key < keys.begin || key >= keys.end) s[n][2 * h + j] = -INFINITY;
      }
    }
  }
}

// Scores to weights, and the state to their maximum. The four lanes of a row keep sums of their
// own.
template <int kHeadDim>
__device__ __forceinline__ void Softmax(float (&s)[kColumns][4], RowState<kHeadDim>& state) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float max = state.max[h];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) max = fmaxf(max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    max = fmaxf(max, __shfl_xor_sync(kFullWarp, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kFullWarp, max, 2));
    const float base = max == -INFINITY ? 0.0f : max;  // the row has seen no key yet
    const float scale = exp2f(state.max[h] - base);
    state.max[h] = max;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 2 * h; i < 2 * h + 2; ++i) {
        s[n][i] = exp2f(s[n][i] - base);
        sum += s[n][i];
      }
    }
    state.sum[h] = fmaf(state.sum[h], scale, sum);
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      state.out[n][2 * h] *= scale;
      state.out[n][2 * h + 1] *= scale;
    }
  }
}

// The weights of a tile as A fragments of the product with its values: score fragments have the
// same form.
template <typename T>
__device__ __forceinline__ void PackWeights(const float (&s)[kColumns][4],
                                            uint32_t (&p)[kTile / 16][4]) {
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = s[2 * k + i / 2] + i % 2 * 2;
      p[k][i] = PackPair<T>(pair[0], pair[1]);
    }
  }
}

// out += p v of a tile.
template <typename T, int kHeadDim>
__device__ __forceinline__ void WeightValues(const char* values, const uint32_t (&p)[kTile / 16][4],
                                             int lane, RowState<kHeadDim>& state) {
  values += lane % 16 * kPitch<kHeadDim> + lane / 16 * 16;
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n += 2) {
      uint32_t b[4];
      LoadMatrixTransposed(b, values + k * 16 * kPitch<kHeadDim> + n * 16);
      Mma<T>(state.out[n], p[k], {b[0], b[1]});
      Mma<T>(state.out[n + 1], p[k], {b[2], b[3]});
    }
  }
}

// Ends a split: adds up the sums of the four lanes of a row.
template <int kHeadDim>
__device__ __forceinline__ void SumLanes(RowState<kHeadDim>& state) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.sum[h] += __shfl_xor_sync(kFullWarp, state.sum[h], 1);
    state.sum[h] += __shfl_xor_sync(kFullWarp, state.sum[h], 2);
  }
}

// Joins `state` of split s to `total`, for the rows that see some of its keys.
template <int kHeadDim>
__device__ __forceinline__ void MergeSplit(const AttnWork& w, const AttnItem& item, int warp,
                                           int lane, int s, const RowState<kHeadDim>& state,
                                           RowState<kHeadDim>& total) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const KeyRange keys = w.mask.Keys(item.pos(RowOf(item, warp, lane / 4, h)), item.kv_len);
    if (keys.end <= SplitBegin(s) || keys.begin >= SplitBegin(s + 1)) continue;
    const MergeFactors f = Merge(total.max[h], state.max[h]);
    total.max[h] = f.max;
    total.sum[h] = fmaf(state.sum[h], f.new_scale, total.sum[h] * f.old_scale);
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
      for (int i = 2 * h; i < 2 * h + 2; ++i) {
        total.out[n][i] = fmaf(state.out[n][i], f.new_scale, total.out[n][i] * f.old_scale);
      }
    }
  }
}

template <int kHeadDim>
__device__ __forceinline__ void StorePartial(const AttnWork& w, const AttnItem& item, int warp,
                                             int lane, int split, const RowState<kHeadDim>& state) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = 16 * warp + 8 * h + g;
    if (r >= item.rows()) continue;
    float* partial = Partial(w, item, r, split);
    if (t == 0) {
      partial[0] = state.max[h];
      partial[1] = state.sum[h];
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      if (!IsOfHead<kHeadDim>(8 * n, w.head_dim)) continue;
      *reinterpret_cast<float2*>(partial + kPartialState + 8 * n + 2 * t) =
          make_float2(state.out[n][2 * h], state.out[n][2 * h + 1]);
    }
  }
}

template <typename T, int kHeadDim>
__device__ __forceinline__ void StoreRows(const AttnWork& w, const AttnItem& item, int warp,
                                          int lane, const RowState<kHeadDim>& total) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = 16 * warp + 8 * h + g;
    if (r >= item.rows()) continue;
    T* to = reinterpret_cast<T*>(w.out.Row(item.q_row + r / item.heads)) +
            int64_t{item.head(r)} * (kHeadDim == 80 ? w.head_dim : kHeadDim) + 2 * t;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      if (!IsOfHead<kHeadDim>(8 * n, w.head_dim)) continue;
      const float low = Output(total.out[n][2 * h], total.sum[h]);
      const float high = Output(total.out[n][2 * h + 1], total.sum[h]);
      if (w.out.vectors) {
        *reinterpret_cast<uint32_t*>(to + 8 * n) = PackPair<T>(low, high);
      } else {
        to[8 * n] = Narrow<T>::From(low);
        to[8 * n + 1] = Narrow<T>::From(high);
      }
    }
  }
}

// T: of queries and outputs.
template <typename T, typename View, int kHeadDim>
__global__ void __launch_bounds__(kThreads, kResident<kHeadDim>)
    MmaKernel(const __grid_constant__ AttnWork w, const __grid_constant__ View view) {
  KU_DYNAMIC_SHARED(char, queries);
  KU_SHARED(counts, int[kThreads]);
  KU_SHARED(is_last, int[kMaxBlockSeqs]);
  KU_SHARED(shared_item, AttnItem);  // registers are scarce
  KU_SHARED(range, KeyRange);        // of its splits
  KU_SHARED(warp_keys, WarpKeys[kWarps]);
  AwaitEarlierKernels();
  char* const stages = queries + kTileBytes<kHeadDim>;
  auto* const addresses = reinterpret_cast<typename View::Row*>(stages + 3 * kTileBytes<kHeadDim>);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const AttnItem& item = shared_item;
  AttnItemList items(w, counts);
  AttnItem found;
  for (int index = static_cast<int>(blockIdx.x); items.Find(index, &found);
       index += static_cast<int>(gridDim.x)) {
    __syncthreads();  // all are done with the item before
    if (threadIdx.x == 0) {
      shared_item = found;
      range = found.KeysOf(found.first_split(), found.end_split());
    }
    __syncthreads();
    const bool has_rows = 16 * warp < item.rows();
    // Warps without rows copy alone, so that the others only compute.
    const int first_copier = item.rows() <= kRows - 16 ? (item.rows() + 15) / 16 * kWarpSize : 0;
    if (has_rows && lane == 0) warp_keys[warp] = FindWarpKeys(w, item, warp);
    int split = item.first_split();
    int tile = range.begin / kTile;
    const int end = (range.end + kTile - 1) / kTile;
    // Addresses of tile t are in half t mod 2.
    FindKeys(view, item, range, tile, addresses + tile % 2 * kTile);
    if (tile + 1 < end) FindKeys(view, item, range, tile + 1, addresses + (tile + 1) % 2 * kTile);
    __syncthreads();
    CopyTile<T, false, kHeadDim>(view, stages, addresses + tile % 2 * kTile, first_copier);
    CommitCopies();
    CopyTile<T, true, kHeadDim>(view, stages + kTileBytes<kHeadDim>, addresses + tile % 2 * kTile,
                                first_copier);
    CommitCopies();
    LoadQueries<T, kHeadDim>(w, item, queries);

    RowState<kHeadDim> total, state;
    total.Clear();
    state.Clear();
    int stage = 0;  // of the tile's keys; its values are in the next
    for (; tile < end; ++tile) {
      const int first_key = tile * kTile;
      const bool sees = has_rows && first_key < warp_keys[warp].some.end &&
                        first_key + kTile > warp_keys[warp].some.begin;
      typename View::Row* const next = addresses + (tile + 1) % 2 * kTile;
      char* const keys = stages + stage * kTileBytes<kHeadDim>;
      char* const values = stages + (stage + 1) % 3 * kTileBytes<kHeadDim>;
      stage = (stage + 2) % 3;
      uint32_t p[kTile / 16][4] = {};
      WaitCopies<1>();
      __syncthreads();  // the keys have landed, and all are done with the values before
      if (tile + 1 < end)
        CopyTile<T, false, kHeadDim>(view, stages + stage * kTileBytes<kHeadDim>, next,
                                     first_copier);
      CommitCopies();
      if (tile + 2 < end) {
        FindKeys(view, item, range, tile + 2, addresses + tile % 2 * kTile);
      }
      if (sees) {
        float s[kColumns][4] = {};
        ComputeScores<T, kHeadDim>(queries + 16 * warp * kPitch<kHeadDim>, keys, lane, s);
        MaskScores(w, item, warp_keys[warp].all, warp, lane, first_key, s);
        Softmax(s, state);
        PackWeights<T>(s, p);
      }
      WaitCopies<1>();
      __syncthreads();  // the values have landed, and all are done with the keys
      if (tile + 1 < end) CopyTile<T, true, kHeadDim>(view, keys, next, first_copier);
      CommitCopies();
      if (sees) WeightValues<T>(values, p, lane, state);

      const bool split_ends = tile + 1 == end || first_key + kTile == SplitBegin(split + 1);
      if (!has_rows || !split_ends) continue;
      SumLanes(state);
      if (item.split >= 0) {
        StorePartial(w, item, warp, lane, split, state);
      } else {
        MergeSplit(w, item, warp, lane, split, state, total);
      }
      state.Clear();
      ++split;
    }
    WaitCopies<0>();
    if (item.split >= 0) {
      FinishSplits<4>(w, item, items.runs(), is_last);
    } else if (has_rows) {
      StoreRows<T>(w, item, warp, lane, total);
    }
  }
}

template <typename T, typename View, int kHeadDim>
void LaunchMma(const Resources& resources, const AttnCall& call, const View& view) {
  int grid = 0;
  const AttnWork work =
      PlanAttention(resources, call, kRows, kResident<kHeadDim>, kSharedBytes<kHeadDim>, &grid);
  Launch<MmaKernel<T, View, kHeadDim>>(dim3(static_cast<unsigned>(grid)), dim3(kThreads),
                                       kSharedBytes<kHeadDim>, resources.stream, work, view);
}

// Allows the shared memory of the kernels for storage in Element.
template <typename T, typename Element, int kHeadDim>
void AllowMma() {
  AllowSharedMemory(MmaKernel<T, PagedView<Element>, kHeadDim>, kSharedBytes<kHeadDim>);
  AllowSharedMemory(MmaKernel<T, ContiguousView<Element>, kHeadDim>, kSharedBytes<kHeadDim>);
}

}  // namespace mma
}  // namespace kuiper::KU_GPU
