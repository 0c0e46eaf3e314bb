// Attention of decode steps on tensor cores: every sequence has one query row. It computes the same
// tiles, products and splits as attention_mma.cuh in the same order, and so the same bits, but
// divides a block differently. For a short sequence it takes as long as its longest chain of loads
// and instructions. Code that runs once costs 7 cycles per instruction on an H200. So each warp
// runs little code, and data that earlier steps stored is requested before the preceding kernels
// end.
//
// A block's rows share a kv head: the query heads of its group, or those of several sequences that
// share keys. Four warps compute. Up to 16 rows are divided by columns. Then each warp has a
// quarter of a tile's keys, for scores and weights, and a quarter of the output columns; weights
// are exchanged through shared memory. More rows (of shared keys) are divided by rows. Two more
// warps copy keys and values through a ring of three stages, so that a full load queue does not
// delay a product. Each of the two looks up the addresses of 32 tokens two tiles ahead.
//
// Each key and value is moved once. Long sequences are bound by DRAM; 80 % of read bandwidth
// expected.
#pragma once

#include "kuiper/kernels/cuda/attention_steps.cuh"
#include "kuiper/kernels/cuda/launch.h"

namespace kuiper::KU_GPU {

namespace mma {

constexpr int kDecodeRows = 16;  // at most this many rows are divided by columns
constexpr int kComputeWarps = kWarps;
constexpr int kCopyWarps = kTile / kWarpSize;
constexpr int kDecodeThreads = (kComputeWarps + kCopyWarps) * kWarpSize;
constexpr int kDecodeResident = 2;  // blocks whose registers fit into an SM
static_assert(kDecodeThreads >= kAttnThreads);

// True if a kernel exists. T is the type of the queries.
template <typename T, typename View, int kHeadDim>
constexpr bool kCanDecode = std::is_same_v<T, typename View::Element> &&
                            (kHeadDim / 16 % kComputeWarps == 0);

// Data that the computing warps exchange for 16 rows.
struct Exchange {
  float max[kDecodeRows][kComputeWarps];
  float2 sums[kComputeWarps][kWarpSize];    // sums of weights of a lane's two rows
  uint4 weights[kComputeWarps][kWarpSize];  // A fragments of 16 keys
};

// Shared memory: queries, three stages of keys or values, then addresses. Exchange occupies the
// space of the query rows after the first 16.
template <int kHeadDim>
struct DecodeMemory {
  char* queries;

  static constexpr int kBytes =
      4 * kTileBytes<kHeadDim> + 2 * kTile * static_cast<int>(sizeof(KvRow<Half>));
  static_assert(sizeof(Exchange) <= (kRows - kDecodeRows) * kPitch<kHeadDim>);
  __device__ Exchange& exchange() const {
    return *reinterpret_cast<Exchange*>(queries + kDecodeRows * kPitch<kHeadDim>);
  }
  // The keys of an item's tile n are in stage 2 n, its values in the next one.
  __device__ char* stage(int n) const { return queries + (1 + n % 3) * kTileBytes<kHeadDim>; }
  template <typename Row>
  __device__ Row* addresses(int tile) const {
    return reinterpret_cast<Row*>(queries + 4 * kTileBytes<kHeadDim>) + tile % 2 * kTile;
  }
};

// A barrier of the whole block. The two roles reach it at different call sites, which bar.sync
// allows; the emulated device needs one source line for it.
__device__ __forceinline__ void BarrierOfBothRoles() {
  __syncthreads();
}

// Starts copying the keys or values of a warp's 32 tokens to a stage. left_out: a token of the tile
// that is not copied, or -1; ignored with kAll.
template <bool kValues, bool kAll, int kHeadDim, typename View>
__device__ __forceinline__ void CopyHalfTile(const View& view, const typename View::Row* keys,
                                             char* stage, int first, int lane, int left_out) {
  constexpr int kChunks = kHeadDim / 8, kAtOnce = kWarpSize / kChunks;  // tokens
  const int chunk = lane % kChunks, token = first + lane / kChunks;
  char* to = stage + token * kPitch<kHeadDim> + chunk * 16;
#pragma unroll 4
  for (int i = 0; i < kWarpSize; i += kAtOnce) {
    if (!kAll && token + i == left_out) continue;
    const typename View::Row row = keys[token + i];
    const typename View::Row from = (kValues ? view.ValueOf(row) : row) + chunk * 8;
    CopyAsyncOrZero(to + i * kPitch<kHeadDim>, row.empty() ? nullptr : from.data, !row.empty());
  }
}

// Copies the key and value of the token that was left out.
template <int kHeadDim, typename View>
__device__ __forceinline__ void CopyToken(const View& view, const typename View::Row* keys,
                                          const DecodeMemory<kHeadDim>& m, int token, int lane) {
  if (lane >= kHeadDim / 8) return;
  const int at = token * kPitch<kHeadDim> + lane * 16;
  CopyAsync(m.stage(0) + at, (keys[token] + lane * 8).data);
  CopyAsync(m.stage(1) + at, (view.ValueOf(keys[token]) + lane * 8).data);
}

// The copying warps of a block. `waits`: earlier kernels may still be computing the sequence's last
// key and value; all others are already in memory. Barriers of a tile: (1) its keys have arrived
// and the previous values are consumed; (2) its keys are consumed; (3) its values have arrived.
template <int kHeadDim, typename View>
__device__ __forceinline__ void CopyTiles(const View& view, const AttnItem& item,
                                          const KeyRange& range, const DecodeMemory<kHeadDim>& m,
                                          int warp, int lane, bool waits) {
  using Row = typename View::Row;
  const int first = warp * kWarpSize;
  const auto find = [&](int tile) {
    const int pos = tile * kTile + first + lane;
    Row row{};
    if (pos >= range.begin && pos < range.end) row = view.Key(item.seq, pos, item.kv_head);
    return row;
  };
  const auto publish_addresses = [&](int tile, const Row& row) {
    Row* const keys = m.template addresses<Row>(tile);
    keys[first + lane] = row;
    __syncwarp();
    return keys;
  };
  const int begin = range.begin / kTile, end = (range.end + kTile - 1) / kTile;
  Row ahead = find(begin);
  {
    const Row* keys = publish_addresses(begin, ahead);
    ahead = find(begin + 1);
    const int last = waits ? item.kv_len - 1 - begin * kTile : -1;
    CopyHalfTile<false, false, kHeadDim>(view, keys, m.stage(0), first, lane, last);
    CopyHalfTile<true, false, kHeadDim>(view, keys, m.stage(1), first, lane, last);
    if (waits) {
      AwaitEarlierKernelsOnly();
      if (last >= first && last < first + kWarpSize) CopyToken(view, keys, m, last, lane);
    }
    CommitCopies();
    CommitCopies();  // these values arrive with the keys
  }
#pragma unroll 1
  for (int tile = begin + 1;; ++tile) {  // copies `tile` while the previous one is computed
    const Row* keys = publish_addresses(tile, ahead);
    ahead = find(tile + 1);
    const int stage = 2 * (tile - begin);
    WaitCopies<1>();
    BarrierOfBothRoles();
    if (tile < end)
      CopyHalfTile<false, true, kHeadDim>(view, keys, m.stage(stage), first, lane, -1);
    CommitCopies();
    BarrierOfBothRoles();
    if (tile < end) {
      CopyHalfTile<true, true, kHeadDim>(view, keys, m.stage(stage + 1), first, lane, -1);
    }
    CommitCopies();
    WaitCopies<2>();
    BarrierOfBothRoles();
    if (tile == end) break;
  }
  WaitCopies<0>();
}

// The computing warps of a block, up to storing outputs or partial results.
template <typename T, bool kByColumns, int kHeadDim>
__device__ __forceinline__ void ComputeTiles(const AttnWork& w, const AttnItem& item,
                                             const KeyRange& range, const DecodeMemory<kHeadDim>& m,
                                             int warp, int lane, bool waits) {
  constexpr int kWays = kByColumns ? kComputeWarps : 1;
  constexpr int kKeys = kColumns / kWays, kOutputs = kHeadDim / 8 / kWays;
  const int rows_of = kByColumns ? 0 : warp, columns_of = kByColumns ? warp : 0;
  const int column = columns_of * kOutputs * 8;
  const bool has_rows = 16 * rows_of < item.rows();
  if (waits) AwaitEarlierKernelsOnly();
  LoadQueries<T, kHeadDim, kComputeWarps * kWarpSize>(w, item, m.queries);
  RowState<kOutputs> state, total;
  state.Clear();
  if constexpr (kByColumns) total.Clear();
  const int begin = range.begin / kTile, end = (range.end + kTile - 1) / kTile;
  int split = item.first_split();
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    const int stage = 2 * (tile - begin);
    const int warps_keys = columns_of * kKeys * 8;
    float s[kKeys][4] = {};
    BarrierOfBothRoles();  // the keys have arrived
    if (has_rows) {
      ComputeScores<T, kHeadDim>(m.queries + 16 * rows_of * kPitch<kHeadDim>,
                                 m.stage(stage) + warps_keys * kPitch<kHeadDim>, lane, s);
      const int first_key = tile * kTile + warps_keys + lane % 4 * 2;
      ScaleScores(w, item, rows_of, lane, first_key, s);
      // All rows attend to the same keys.
      if (tile * kTile < item.keys.begin || tile * kTile + kTile > item.keys.end) {
        HideKeys(item.keys, 0, first_key, s);
        HideKeys(item.keys, 1, first_key, s);
      }
    }
    uint32_t p[kTile / 16][4];
    if constexpr (kByColumns) {
      Exchange& exchange = m.exchange();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float max = MaxOf(s, h);
        if (lane % 4 == 0) exchange.max[lane / 4 + 8 * h][warp] = max;
      }
      BarrierOfBothRoles();  // maxima are visible; the keys are consumed
      float max[2], sum[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float4 of = *reinterpret_cast<const float4*>(exchange.max[lane / 4 + 8 * h]);
        max[h] = fmaxf(fmaxf(fmaxf(of.x, of.y), fmaxf(of.z, of.w)), state.max[h]);
        sum[h] = WeighScores(BaseOf(max[h]), h, s);
      }
      uint32_t mine[1][4];
      PackWeights<T>(s, mine);
      exchange.sums[warp][lane] = make_float2(sum[0], sum[1]);
      exchange.weights[warp][lane] = make_uint4(mine[0][0], mine[0][1], mine[0][2], mine[0][3]);
      BarrierOfBothRoles();  // values, weights and sums have arrived
      sum[0] = sum[1] = 0.0f;
#pragma unroll
      for (int n = 0; n < kComputeWarps; ++n) {
        const float2 sums = exchange.sums[n][lane];
        const uint4 of = exchange.weights[n][lane];
        sum[0] += sums.x;
        sum[1] += sums.y;
        p[n][0] = of.x;
        p[n][1] = of.y;
        p[n][2] = of.z;
        p[n][3] = of.w;
      }
      AddTile(0, max[0], sum[0], state);
      AddTile(1, max[1], sum[1], state);
    } else {
      BarrierOfBothRoles();  // the keys are consumed
      if (has_rows) Softmax(s, state);
      PackWeights<T>(s, p);
      BarrierOfBothRoles();  // the values have arrived
    }
    if (!has_rows) continue;
    WeightValues<T, kHeadDim>(m.stage(stage + 1) + column * static_cast<int>(sizeof(T)), p, lane,
                              state);
    if (tile + 1 < end && tile * kTile + kTile != SplitBegin(split + 1)) continue;
    SumLanes(state);
    if (item.split >= 0) {
      StorePartial<kHeadDim>(w, item, rows_of, column, lane, split, state);
    } else if constexpr (kByColumns) {
      JoinRow(0, state, total);
      JoinRow(1, state, total);
    }
    state.Clear();
    ++split;
  }
  if constexpr (kByColumns) {
    if (item.split < 0) StoreRows<T, kHeadDim>(w, item, 0, column, lane, total);
  }
}

// T: type of queries, outputs and the KV cache.
template <typename T, typename View, int kHeadDim>
__global__ void __launch_bounds__(kDecodeThreads, kDecodeResident)
    DecodeKernel(const __grid_constant__ AttnWork w, const __grid_constant__ View view) {
  KU_DYNAMIC_SHARED(char, base);
  KU_SHARED(counts, int[kAttnThreads]);
  KU_SHARED(is_last, int[kMaxBlockSeqs]);
  AllowNextKernel();
  // If only the newest keys and values are of this step, the kernel reads all others before it
  // waits. A block without an item ends without waiting; the first block of each kv head always has
  // an item.
  bool waits = w.appends;
  if (!waits) AwaitEarlierKernelsOnly();
  const DecodeMemory<kHeadDim> memory{base};
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  AttnItemList items(w, counts);
  AttnItem item;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.y); items.Find(index, &item);
       index += static_cast<int>(gridDim.y)) {
    __syncthreads();  // the previous item is finished
    const KeyRange range = item.KeysOf(item.first_split(), item.end_split());
    if (warp >= kComputeWarps) {
      CopyTiles<kHeadDim>(view, item, range, memory, warp - kComputeWarps, lane, waits);
    } else if (item.rows() <= kDecodeRows) {
      ComputeTiles<T, true, kHeadDim>(w, item, range, memory, warp, lane, waits);
    } else {
      ComputeTiles<T, false, kHeadDim>(w, item, range, memory, warp, lane, waits);
    }
    waits = false;
    if (item.split >= 0) FinishSplits<4>(w, item, items.runs(), is_last);
  }
}

// True if the decode kernel supports the call.
inline bool CanDecode(const AttnCall& call) {
  return call.max_q_len == 1 && call.group <= kDecodeRows;
}

template <typename T, typename View, int kHeadDim>
void LaunchDecode(const Resources& resources, const AttnCall& call, const View& view) {
  constexpr int kBytes = DecodeMemory<kHeadDim>::kBytes;
  dim3 grid;
  const AttnWork work = PlanAttention(resources, call, kRows, kDecodeResident, kBytes, &grid);
  Launch<DecodeKernel<T, View, kHeadDim>>(grid, dim3(kDecodeThreads), kBytes, resources.stream,
                                          work, view);
}

}  // namespace mma
}  // namespace kuiper::KU_GPU
