// How the flash kernels merge the results of splits: within one block, or from memory if several
// blocks share a sequence. Both merge in ascending order.
#pragma once

#include "kuiper/kernels/cuda/attention_work.cuh"

namespace kuiper::KU_GPU {

// Factors that join the merged splits with the next one.
struct MergeFactors {
  float max, old_scale, new_scale;
};
__device__ __forceinline__ MergeFactors Merge(float max, float next_max) {
  const float both = fmaxf(max, next_max);
  return {both, exp2f(max - both), exp2f(next_max - both)};
}

// Returns where a block stores row r of its split: max, sum, output.
__device__ __forceinline__ float* Partial(const AttnWork& w, const AttnItem& item, int r,
                                          int split) {
  const int position = item.position(r);
  return w.partials + (item.ticket(w, position) * w.max_splits + split) * w.partial_floats() +
         (r - position * item.heads) * (kPartialState + w.head_dim);
}

// Returns the weighted sum of values times the inverse of the sum of weights. Maps -0 to 0: whether
// a sum stays -0 depends on whether a tile that the row does not attend to is skipped.
__device__ __forceinline__ float Output(float out, float inverse) {
  return out * inverse + 0.0f;
}

__device__ __forceinline__ void StoreOutput(const AttnWork& w, const AttnItem& item, int r, int i,
                                            float x) {
  StoreAny(w.out.Row(item.q_row + item.position(r)), w.out.dtype,
           static_cast<int64_t>(item.head(r)) * w.head_dim + i, x);
}

// Loads floats that another block may have written, aligned as a whole.
__device__ __forceinline__ void LoadWritten(const float* p, float (&v)[2]) {
  const float2 x = __ldcg(reinterpret_cast<const float2*>(p));
  v[0] = x.x;
  v[1] = x.y;
}
__device__ __forceinline__ void LoadWritten(const float* p, float (&v)[4]) {
  const float4 x = __ldcg(reinterpret_cast<const float4*>(p));
  v[0] = x.x;
  v[1] = x.y;
  v[2] = x.z;
  v[3] = x.w;
}

// Merges all splits of row r; this thread stores output columns from i on.
template <int kColumns>
__device__ __forceinline__ void MergeRow(const AttnWork& w, const AttnItem& item, int r, int i,
                                         int first, int end) {
  const float* row = Partial(w, item, r, first);
  float max = -INFINITY, sum = 0.0f, out[kColumns] = {};
#pragma unroll 4
  for (int s = first; s < end; ++s, row += w.partial_floats()) {
    float state[2], next[kColumns];
    LoadWritten(row, state);
    LoadWritten(row + kPartialState + i, next);
    const MergeFactors f = Merge(max, state[0]);
    max = f.max;
    sum = fmaf(state[1], f.new_scale, sum * f.old_scale);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) out[c] = fmaf(next[c], f.new_scale, out[c] * f.old_scale);
  }
  const float inverse = 1.0f / sum;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) StoreOutput(w, item, r, i + c, Output(out[c], inverse));
}

// Merges the rows of those of the item's sequences for which this block is the last.
template <int kColumns>
__device__ __forceinline__ void MergeSequences(const AttnWork& w, const AttnItem& item,
                                               const int* is_last) {
  const int vectors = w.head_dim / kColumns, of_seq = item.heads * vectors;
  for (int n = static_cast<int>(threadIdx.x); n < item.positions * of_seq;
       n += static_cast<int>(blockDim.x)) {
    const int seq = n / of_seq;
    if (is_last[seq] == 0) continue;
    const KeyRange keys = w.LastKeys(item.seq + seq);
    MergeRow<kColumns>(w, item, n / vectors, n % vectors * kColumns, SplitOf(keys.begin),
                       NumSplits(keys.end));
  }
}

// Called by the whole block after it has stored its splits (Partial): the last block of a sequence
// and kv head merges all of them. `is_last` [kMaxBlockSeqs] is shared memory; head_dim is a
// multiple of kColumns.
template <int kColumns>
__device__ __forceinline__ void FinishSplits(const AttnWork& w, const AttnItem& item,
                                             const SplitRuns& runs, int* is_last) {
  const int tid = static_cast<int>(threadIdx.x);
  __threadfence();
  __syncthreads();
  if (tid < item.positions) {
    const KeyRange keys = w.LastKeys(item.seq + tid);
    const int count = runs.Count(SplitOf(keys.begin), keys);
    is_last[tid] = atomicAdd(&w.tickets[item.ticket(w, tid)], 1) == count - 1;
    __threadfence();
  }
  __syncthreads();
  MergeSequences<kColumns>(w, item, is_last);
  if (tid < item.positions && is_last[tid] != 0) w.tickets[item.ticket(w, tid)] = 0;
}

}  // namespace kuiper::KU_GPU
