// Attention over paged or contiguous KV on tensor cores (AttentionKind::kFlash2) for queries in
// FP16 and BF16: FlashAttention-2 (Dao 2023). One kernel computes decode and prefill;
// attention_work.cuh divides its work. Batches of only decode steps use the kernel of
// attention_decode.cuh if it supports the call; it gives the same bits faster. Heads of 72 run as
// heads of 80 whose last columns are zeros. Instantiated in attention_mma.cu and
// attention_mma_bytes.cu.
//
// A block is 4 warps and up to 64 rows that share a kv head: all query heads of the group at as
// many positions as fit. So keys and values are read once for all of them. A warp owns 16 rows,
// whose outputs and softmax state stay in registers; a warp without rows, as in decode, only
// copies. Keys are processed in tiles of 64 that start at multiples of 64. The tiles' keys and
// values pass through a ring of three stages filled by cp.async: while one is used, the next two
// are being copied. Addresses are looked up two tiles ahead. One-byte formats (INT8, E4M3) are
// converted to the queries' type during the copy: value times scale, rounded once. Scores are FP32
// (mma m16n8k16). The softmax is online over the tiles of a split. Weights are rounded to the
// element type for the second product; their sum is not rounded.
//
// A row always has the same 64 columns in a tile, and a tile in which it attends to nothing leaves
// its bits unchanged. So the bits depend only on the row's own position and length: decode ==
// prefill, chunked == whole, any batch, any page size. Tokens that no row of the block attends to
// are not read and count as zeros. A token that only some rows attend to has weight 0 in the
// others; this fails if its values contain NaN or infinity.
//
// Prefill moves keys and values once per 64 rows and is bound by the tensor cores; 45 to 55 % of
// their rate expected. Decode moves each key and value once and is bound by DRAM.
#pragma once

#include "kuiper/kernels/cuda/attention_decode.cuh"

namespace kuiper::KU_GPU {

namespace mma {

// The tokens that at least one (some) and that all rows of a warp attend to.
struct WarpKeys {
  KeyRange some, all;
};

__device__ __forceinline__ WarpKeys FindWarpKeys(const AttnWork& w, const AttnItem& item,
                                                 int warp) {
  const KeyRange first = w.mask.Keys(item.pos(RowOf(item, warp, 0, 0)), item.kv_len);
  const KeyRange last = w.mask.Keys(item.pos(RowOf(item, warp, 7, 1)), item.kv_len);
  return {{first.begin, last.end}, {last.begin, first.end}};
}

// Sets the scores of keys that a row does not attend to to -infinity. all: keys that all rows of
// the warp attend to; begin: first key of the tile.
__device__ __forceinline__ void MaskScores(const AttnWork& w, const AttnItem& item,
                                           const KeyRange& all, int warp, int lane, int begin,
                                           float (&s)[kColumns][4]) {
  if (begin >= all.begin && begin + kTile <= all.end) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const KeyRange keys = w.mask.Keys(item.pos(RowOf(item, warp, lane / 4, h)), item.kv_len);
    HideKeys(keys, h, begin + lane % 4 * 2, s);
  }
}

// Merges `state` of split s into `total`, for the rows that attend to some of its keys.
template <int kOutputs>
__device__ __forceinline__ void MergeSplit(const AttnWork& w, const AttnItem& item, int warp,
                                           int lane, int s, const RowState<kOutputs>& state,
                                           RowState<kOutputs>& total) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const KeyRange keys = w.mask.Keys(item.pos(RowOf(item, warp, lane / 4, h)), item.kv_len);
    if (keys.end > SplitBegin(s) && keys.begin < SplitBegin(s + 1)) JoinRow(h, state, total);
  }
}

// T: type of queries and outputs.
template <typename T, typename View, int kHeadDim>
__global__ void __launch_bounds__(kThreads, kResident<kHeadDim>)
    MmaKernel(const __grid_constant__ AttnWork w, const __grid_constant__ View view) {
  KU_DYNAMIC_SHARED(char, queries);
  KU_SHARED(counts, int[kThreads]);
  KU_SHARED(is_last, int[kMaxBlockSeqs]);
  KU_SHARED(shared_item, AttnItem);  // registers are scarce
  KU_SHARED(range, KeyRange);        // keys of the item's splits
  KU_SHARED(warp_keys, WarpKeys[kWarps]);
  AwaitEarlierKernels();
  char* const stages = queries + kTileBytes<kHeadDim>;
  auto* const addresses = reinterpret_cast<typename View::Row*>(stages + 3 * kTileBytes<kHeadDim>);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const AttnItem& item = shared_item;
  AttnItemList items(w, counts);
  AttnItem found;
  for (int index = static_cast<int>(blockIdx.y); items.Find(index, &found);
       index += static_cast<int>(gridDim.y)) {
    __syncthreads();  // the previous item is finished
    if (threadIdx.x == 0) {
      shared_item = found;
      range = found.KeysOf(found.first_split(), found.end_split());
    }
    __syncthreads();
    const bool has_rows = 16 * warp < item.rows();
    // If there are warps without rows, only they copy, so that the others only compute.
    const int first_copier = item.rows() <= kRows - 16 ? (item.rows() + 15) / 16 * kWarpSize : 0;
    if (has_rows && lane == 0) warp_keys[warp] = FindWarpKeys(w, item, warp);
    int split = item.first_split();
    int tile = range.begin / kTile;
    const int end = (range.end + kTile - 1) / kTile;
    // The addresses of tile t are in half t mod 2.
    FindKeys(view, item, range, tile, addresses + tile % 2 * kTile);
    if (tile + 1 < end) FindKeys(view, item, range, tile + 1, addresses + (tile + 1) % 2 * kTile);
    __syncthreads();
    CopyTile<T, false, kHeadDim>(view, stages, addresses + tile % 2 * kTile, first_copier);
    CommitCopies();
    CopyTile<T, true, kHeadDim>(view, stages + kTileBytes<kHeadDim>, addresses + tile % 2 * kTile,
                                first_copier);
    CommitCopies();
    LoadQueries<T, kHeadDim>(w, item, queries);

    RowState<kHeadDim / 8> total, state;
    total.Clear();
    state.Clear();
    int stage = 0;  // stage of the tile's keys; its values are in the next stage
    for (; tile < end; ++tile) {
      const int first_key = tile * kTile;
      const bool attends = has_rows && first_key < warp_keys[warp].some.end &&
                           first_key + kTile > warp_keys[warp].some.begin;
      typename View::Row* const next = addresses + (tile + 1) % 2 * kTile;
      char* const keys = stages + stage * kTileBytes<kHeadDim>;
      char* const values = stages + (stage + 1) % 3 * kTileBytes<kHeadDim>;
      stage = (stage + 2) % 3;
      uint32_t p[kTile / 16][4] = {};
      WaitCopies<1>();
      __syncthreads();  // the keys have arrived; the previous values are consumed
      if (tile + 1 < end)
        CopyTile<T, false, kHeadDim>(view, stages + stage * kTileBytes<kHeadDim>, next,
                                     first_copier);
      CommitCopies();
      if (tile + 2 < end) {
        FindKeys(view, item, range, tile + 2, addresses + tile % 2 * kTile);
      }
      if (attends) {
        float s[kColumns][4] = {};
        ComputeScores<T, kHeadDim>(queries + 16 * warp * kPitch<kHeadDim>, keys, lane, s);
        ScaleScores(w, item, warp, lane, first_key + lane % 4 * 2, s);
        MaskScores(w, item, warp_keys[warp].all, warp, lane, first_key, s);
        Softmax(s, state);
        PackWeights<T>(s, p);
      }
      WaitCopies<1>();
      __syncthreads();  // the values have arrived; the keys are consumed
      if (tile + 1 < end) CopyTile<T, true, kHeadDim>(view, keys, next, first_copier);
      CommitCopies();
      if (attends) WeightValues<T, kHeadDim>(values, p, lane, state);

      const bool split_ends = tile + 1 == end || first_key + kTile == SplitBegin(split + 1);
      if (!has_rows || !split_ends) continue;
      SumLanes(state);
      if (item.split >= 0) {
        StorePartial<kHeadDim>(w, item, warp, 0, lane, split, state);
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
      StoreRows<T, kHeadDim>(w, item, warp, 0, lane, total);
    }
  }
}

template <typename T, typename View, int kHeadDim>
void LaunchMma(const Resources& resources, const AttnCall& call, const View& view) {
  if constexpr (kCanDecode<T, View, kHeadDim>) {
    if (CanDecode(call)) return LaunchDecode<T, View, kHeadDim>(resources, call, view);
  }
  dim3 grid;
  const AttnWork work =
      PlanAttention(resources, call, kRows, kResident<kHeadDim>, kSharedBytes<kHeadDim>, &grid);
  Launch<MmaKernel<T, View, kHeadDim>>(grid, dim3(kThreads), kSharedBytes<kHeadDim>,
                                       resources.stream, work, view);
}

// Allows the shared memory of the kernels for a KV cache of type Element.
template <typename T, typename Element, int kHeadDim>
void AllowMma() {
  AllowSharedMemory(MmaKernel<T, PagedView<Element>, kHeadDim>, kSharedBytes<kHeadDim>);
  AllowSharedMemory(MmaKernel<T, ContiguousView<Element>, kHeadDim>, kSharedBytes<kHeadDim>);
  if constexpr (kCanDecode<T, PagedView<Element>, kHeadDim>) {
    constexpr int kBytes = DecodeMemory<kHeadDim>::kBytes;
    AllowSharedMemory(DecodeKernel<T, PagedView<Element>, kHeadDim>, kBytes);
    AllowSharedMemory(DecodeKernel<T, ContiguousView<Element>, kHeadDim>, kBytes);
  }
}

}  // namespace mma
}  // namespace kuiper::KU_GPU
