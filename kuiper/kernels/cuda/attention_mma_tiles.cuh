// How the kernels of attention_mma.cuh store queries, keys and values in shared memory, and the
// copies that fill it.
#pragma once

#include <type_traits>

#include "kuiper/kernels/cuda/async_copy.cuh"
#include "kuiper/kernels/cuda/attention_work.cuh"

namespace kuiper::KU_GPU {
namespace mma {

constexpr int kThreads = kAttnThreads;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kRows = 16 * kWarps;  // maximum rows of a block
constexpr int kTile = 64;           // keys per tile
constexpr int kColumns = kTile / 8;
// Groups of 8 columns whose weights are summed before the next ones: the kKeys of a warp in the
// decode kernel, so that both kernels sum in the same order.
constexpr int kQuarter = kColumns / kWarps;
// Blocks whose shared memory and registers fit into an SM of an Orin.
template <int kHeadDim>
constexpr int kResident = kHeadDim <= 80 ? 3 : 2;
static_assert(128 % kTile == 0, "a split is whole tiles");
static_assert(kRows <= kMaxBlockSeqs);

// Shared memory: queries, three stages of keys or values, then [2][kTile] KvRow of keys. Rows are
// an odd number of 16-byte units apart, so that the 8 rows of an ldmatrix are in different banks.
template <int kHeadDim>
constexpr int kPitch = kHeadDim * 2 + 16;
template <int kHeadDim>
constexpr int kTileBytes = kTile* kPitch<kHeadDim>;
template <int kHeadDim>
constexpr int kSharedBytes = 4 * kTileBytes<kHeadDim> + 2 * kTile * 16;
static_assert(2 * kSharedBytes<128> <= 160 << 10 && 3 * kSharedBytes<80> <= 160 << 10);

// True if the 8 columns from `column` on are part of the head, false if they are zero padding.
template <int kHeadDim>
__device__ __forceinline__ bool IsInHead(int column, int head_dim) {
  return kHeadDim != 80 || column < head_dim;
}

// Copies the queries of the block to shared memory with its first kCopiers threads.
template <typename T, int kHeadDim, int kCopiers = kThreads>
__device__ __forceinline__ void LoadQueries(const AttnWork& w, const AttnItem& item, char* to) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < item.rows() * kChunks; i += kCopiers) {
    const int r = i / kChunks, chunk = i % kChunks;
    const T* from = reinterpret_cast<const T*>(w.q.Row(item.q_row + item.position(r))) +
                    item.head(r) * w.q_head_stride + chunk * 8;
    T* row = reinterpret_cast<T*>(to + r * kPitch<kHeadDim>) + chunk * 8;
    if (!IsInHead<kHeadDim>(chunk * 8, w.head_dim)) {
      *reinterpret_cast<uint4*>(row) = uint4{};
    } else if (w.q.vectors) {
      *reinterpret_cast<uint4*>(row) = *reinterpret_cast<const uint4*>(from);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) row[j] = from[j];
    }
  }
}

// Finds the addresses of the keys of a tile; null for keys that the block does not need. The last
// threads do it, because in decode their warps have no rows.
template <typename View>
__device__ __forceinline__ void FindKeys(const View& view, const AttnItem& item,
                                         const KeyRange& range, int tile,
                                         typename View::Row* keys) {
  const int i = static_cast<int>(threadIdx.x) - (kThreads - kTile);
  if (i < 0) return;
  const int pos = tile * kTile + i;
  keys[i] = {};
  if (pos >= range.begin && pos < range.end) keys[i] = view.Key(item.seq, pos, item.kv_head);
}

// Copies a tile of keys, or of their values, to a stage with the threads from `first` on. Copies
// may still be running when it returns.
template <typename T, bool kValues, int kHeadDim, typename View>
__device__ __forceinline__ void CopyTile(const View& view, char* stage,
                                         const typename View::Row* keys, int first) {
  using Row = typename View::Row;
  using Element = typename View::Element;
  const int tid = static_cast<int>(threadIdx.x) - first, threads = kThreads - first;
  if (tid < 0) return;
  if constexpr (std::is_same_v<T, Element>) {
    constexpr int kChunks = kHeadDim / 8;
#pragma unroll 2  // more copies at a time need registers that are not there
    for (int i = tid; i < kTile * kChunks; i += threads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const Row key = keys[row];
      const bool valid = !key.empty() && IsInHead<kHeadDim>(chunk * 8, view.head_dim());
      const Row from = (kValues ? view.ValueOf(key) : key) + chunk * 8;
      CopyAsyncOrZero(stage + row * kPitch<kHeadDim> + chunk * 16, valid ? from.data : nullptr,
                      valid);
    }
  } else {
    constexpr int kCodes = 16;  // one-byte elements per load
    constexpr int kChunks = kHeadDim / kCodes;
    // One iteration if one warp computes and three copy.
    constexpr int kCopiers = kThreads - kWarpSize;
    constexpr int kAtOnce = (kTile * kChunks + kCopiers - 1) / kCopiers;
    for (int begin = tid; begin < kTile * kChunks; begin += kAtOnce * threads) {
      uint4 codes[kAtOnce];
      float scales[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int i = begin + n * threads;
        codes[n] = uint4{};
        scales[n] = 0.0f;
        if (i >= kTile * kChunks || keys[i / kChunks].empty()) continue;
        const Row key = keys[i / kChunks];
        const Row from = (kValues ? view.ValueOf(key) : key) + i % kChunks * kCodes;
        codes[n] = *reinterpret_cast<const uint4*>(from.data);
        scales[n] = from.Scale();
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int i = begin + n * threads;
        if (i >= kTile * kChunks) break;
        const uint32_t words[4] = {codes[n].x, codes[n].y, codes[n].z, codes[n].w};
        uint32_t pairs[8];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float v[4];
          UnpackCodes(words[j], v, Element{});
          pairs[2 * j] = PackPair<T>(v[0] * scales[n], v[1] * scales[n]);
          pairs[2 * j + 1] = PackPair<T>(v[2] * scales[n], v[3] * scales[n]);
        }
        auto* const to = reinterpret_cast<uint4*>(stage + i / kChunks * kPitch<kHeadDim> +
                                                  i % kChunks * kCodes * sizeof(T));
        to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        to[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
      }
    }
  }
}

}  // namespace mma
}  // namespace kuiper::KU_GPU
