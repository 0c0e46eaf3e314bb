// The steps on a tile of 64 keys that attention_mma.cuh and attention_decode.cuh share: scores,
// softmax and weighted values of 16 rows on tensor cores (mma.m16n8k16), and storing the results.
// An element is summed in the order of keys and of head_dim, whichever warp computes it.
#pragma once

#include "kuiper/kernels/cuda/attention_mma_tiles.cuh"
#include "kuiper/kernels/cuda/attention_partials.cuh"
#include "kuiper/kernels/cuda/mma.cuh"

namespace kuiper::KU_GPU {
namespace mma {

// Maps row g + 8 * h of the `rows_of`-th 16 rows to a row of the block. The 16 rows are those of a
// fragment of mma.cuh. Rows past the block's last row map to the last row.
__device__ __forceinline__ int RowOf(const AttnItem& item, int rows_of, int g, int h) {
  const int r = 16 * rows_of + 8 * h + g, last = item.rows() - 1;
  return r < last ? r : last;
}

// Output and softmax state of both rows of a lane; the result is out / sum.
template <int kOutputs>
struct RowState {
  float out[kOutputs][4];
  float max[2];
  float sum[2];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) {
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

// s = q k^T for keys of a tile. `q` points to the warp's first row, `keys` to its first key.
template <typename T, int kHeadDim, int kKeys>
__device__ __forceinline__ void ComputeScores(const char* q, const char* keys, int lane,
                                              float (&s)[kKeys][4]) {
  q += lane % 16 * kPitch<kHeadDim> + lane / 16 * 16;
  keys += (lane / 16 * 8 + lane % 8) * kPitch<kHeadDim> + lane / 8 % 2 * 16;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t a[4];
    LoadMatrix(a, q + k * 32);
#pragma unroll
    for (int n = 0; n < kKeys; n += 2) {
      uint32_t b[4];
      LoadMatrix(b, keys + n * 8 * kPitch<kHeadDim> + k * 32);
      Mma<T>(s[n], a, {b[0], b[1]});
      Mma<T>(s[n + 1], a, {b[2], b[3]});
    }
  }
}

// Converts scores to the scale of exp2 and adds ALiBi. `first_key` is the key of s[0][0].
template <int kKeys>
__device__ __forceinline__ void ScaleScores(const AttnWork& w, const AttnItem& item, int rows_of,
                                            int lane, int first_key, float (&s)[kKeys][4]) {
#pragma unroll
  for (int n = 0; n < kKeys; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] *= w.scale_log2e;
  }
  if (w.mask.slopes == nullptr) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = RowOf(item, rows_of, lane / 4, h), pos = item.pos(r);
    const float slope = w.mask.Slope(item.head(r));
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int distance = first_key + 8 * n + j - pos;
        s[n][2 * h + j] = fmaf(slope, static_cast<float>(distance), s[n][2 * h + j]);
      }
    }
  }
}

// Sets the scores of keys that row h of the lane does not attend to to -infinity.
template <int kKeys>
__device__ __forceinline__ void HideKeys(const KeyRange& seen, int h, int first_key,
                                         float (&s)[kKeys][4]) {
#pragma unroll
  for (int n = 0; n < kKeys; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int key = first_key + 8 * n + j;
      if (key < seen.begin || key >= seen.end) s[n][2 * h + j] = -INFINITY;
    }
  }
}

// Returns the largest score of row h over its four lanes.
template <int kKeys>
__device__ __forceinline__ float MaxOf(const float (&s)[kKeys][4], int h) {
  float max = -INFINITY;
#pragma unroll
  for (int n = 0; n < kKeys; ++n) max = fmaxf(max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
  max = fmaxf(max, __shfl_xor_sync(kFullWarp, max, 1));
  return fmaxf(max, __shfl_xor_sync(kFullWarp, max, 2));
}

// Returns the number subtracted from the scores of a row with this maximum. -infinity means that
// the row has attended to no key yet.
__device__ __forceinline__ float BaseOf(float max) {
  return max == -INFINITY ? 0.0f : max;
}

// Converts the scores of row h to weights and returns their sum. The columns n of each kQuarter are
// summed first.
template <int kKeys>
__device__ __forceinline__ float WeighScores(float base, int h, float (&s)[kKeys][4]) {
  float total = 0.0f;
#pragma unroll
  for (int q = 0; q < kKeys; q += kQuarter) {
    float sum = 0.0f;
#pragma unroll
    for (int n = q; n < q + kQuarter; ++n) {
#pragma unroll
      for (int i = 2 * h; i < 2 * h + 2; ++i) {
        s[n][i] = exp2f(s[n][i] - base);
        sum += s[n][i];
      }
    }
    total += sum;
  }
  return total;
}

// Rescales row h to a new maximum and adds the sum of a tile's weights. Each of the row's four
// lanes keeps its own sum.
template <int kOutputs>
__device__ __forceinline__ void AddTile(int h, float max, float sum, RowState<kOutputs>& state) {
  const float scale = exp2f(state.max[h] - BaseOf(max));
  state.max[h] = max;
  state.sum[h] = fmaf(state.sum[h], scale, sum);
#pragma unroll
  for (int n = 0; n < kOutputs; ++n) {
    state.out[n][2 * h] *= scale;
    state.out[n][2 * h + 1] *= scale;
  }
}

// The whole softmax of a tile, for a warp that has all scores of its rows.
template <int kOutputs>
__device__ __forceinline__ void Softmax(float (&s)[kColumns][4], RowState<kOutputs>& state) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float max = fmaxf(state.max[h], MaxOf(s, h));
    AddTile(h, max, WeighScores(BaseOf(max), h, s), state);
  }
}

// Packs weights as A fragments of the product with the values of these keys: score fragments have
// the same layout.
template <typename T, int kKeys>
__device__ __forceinline__ void PackWeights(const float (&s)[kKeys][4],
                                            uint32_t (&p)[kKeys / 2][4]) {
#pragma unroll
  for (int k = 0; k < kKeys / 2; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = s[2 * k + i / 2] + i % 2 * 2;
      p[k][i] = PackPair<T>(pair[0], pair[1]);
    }
  }
}

// out += p v for a tile; `values` points to the warp's first column.
template <typename T, int kHeadDim, int kOutputs>
__device__ __forceinline__ void WeightValues(const char* values, const uint32_t (&p)[kTile / 16][4],
                                             int lane, RowState<kOutputs>& state) {
  values += lane % 16 * kPitch<kHeadDim> + lane / 16 * 16;
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kOutputs; n += 2) {
      uint32_t b[4];
      LoadMatrixTransposed(b, values + k * 16 * kPitch<kHeadDim> + n * 16);
      Mma<T>(state.out[n], p[k], {b[0], b[1]});
      Mma<T>(state.out[n + 1], p[k], {b[2], b[3]});
    }
  }
}

// Ends a split: sums the four lanes of each row.
template <int kOutputs>
__device__ __forceinline__ void SumLanes(RowState<kOutputs>& state) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.sum[h] += __shfl_xor_sync(kFullWarp, state.sum[h], 1);
    state.sum[h] += __shfl_xor_sync(kFullWarp, state.sum[h], 2);
  }
}

// Merges row h of a split into `total`.
template <int kOutputs>
__device__ __forceinline__ void JoinRow(int h, const RowState<kOutputs>& state,
                                        RowState<kOutputs>& total) {
  const MergeFactors f = Merge(total.max[h], state.max[h]);
  total.max[h] = f.max;
  total.sum[h] = fmaf(state.sum[h], f.new_scale, total.sum[h] * f.old_scale);
#pragma unroll
  for (int n = 0; n < kOutputs; ++n) {
#pragma unroll
    for (int i = 2 * h; i < 2 * h + 2; ++i) {
      total.out[n][i] = fmaf(state.out[n][i], f.new_scale, total.out[n][i] * f.old_scale);
    }
  }
}

// Stores a warp's partial results of its rows, from output column `column` on.
template <int kHeadDim, int kOutputs>
__device__ __forceinline__ void StorePartial(const AttnWork& w, const AttnItem& item, int rows_of,
                                             int column, int lane, int split,
                                             const RowState<kOutputs>& state) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = 16 * rows_of + 8 * h + g;
    if (r >= item.rows()) continue;
    float* partial = Partial(w, item, r, split);
    if (t == 0 && column == 0) {
      partial[0] = state.max[h];
      partial[1] = state.sum[h];
    }
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) {
      if (!IsInHead<kHeadDim>(column + 8 * n, w.head_dim)) continue;
      *reinterpret_cast<float2*>(partial + kPartialState + column + 8 * n + 2 * t) =
          make_float2(state.out[n][2 * h], state.out[n][2 * h + 1]);
    }
  }
}

// Stores a warp's final outputs of its rows, from column `column` on.
template <typename T, int kHeadDim, int kOutputs>
__device__ __forceinline__ void StoreRows(const AttnWork& w, const AttnItem& item, int rows_of,
                                          int column, int lane, const RowState<kOutputs>& total) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = 16 * rows_of + 8 * h + g;
    if (r >= item.rows()) continue;
    T* to = reinterpret_cast<T*>(w.out.Row(item.q_row + item.position(r))) +
            int64_t{item.head(r)} * (kHeadDim == 80 ? w.head_dim : kHeadDim) + column + 2 * t;
    const float inverse = 1.0f / total.sum[h];
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) {
      if (!IsInHead<kHeadDim>(column + 8 * n, w.head_dim)) continue;
      const float low = Output(total.out[n][2 * h], inverse);
      const float high = Output(total.out[n][2 * h + 1], inverse);
      if (w.out.vectors) {
        *reinterpret_cast<uint32_t*>(to + 8 * n) = PackPair<T>(low, high);
      } else {
        to[8 * n] = Narrow<T>::From(low);
        to[8 * n + 1] = Narrow<T>::From(high);
      }
    }
  }
}

}  // namespace mma
}  // namespace kuiper::KU_GPU
