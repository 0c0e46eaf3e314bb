// How the flash kernels divide their work, and how results are put together again.
//
// The keys of a sequence are cut into splits at fixed absolute positions (SplitBegin). Every split
// of a row gives (max, sum, output); these are merged in ascending order. A row's bits therefore
// depend on its own position and length only, and who computes a split is free:
//   * a sequence with one query row gives each split to a block of its own; the last one to finish
//     merges (a ticket per sequence and kv head);
//   * other sequences, and batches large enough to fill the device, run their splits one after the
//     other in one block and merge as they go: the same numbers in the same order.
// Splits in which a row sees no key are left out. Work items are found on the device from the
// sequence lengths, over a grid that is fixed on the host, so a captured launch fits every length.
#pragma once

#include "kuiper/kernels/cuda/attention_mask.cuh"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {

constexpr int kAttnThreads = 128;  // of a block

// Splits of 128 tokens up to 2048, of 256 up to 8192, of 512 from there on.
constexpr int kMaxSplit = 512;
KU_HOST_DEVICE int SplitBegin(int split) {
  if (split <= 16) return split * 128;
  if (split <= 40) return 2048 + (split - 16) * 256;
  return 8192 + (split - 40) * kMaxSplit;
}
// The smallest n with SplitBegin(n) >= len.
KU_HOST_DEVICE int NumSplits(int len) {
  if (len <= 2048) return (len + 127) / 128;
  if (len <= 8192) return 16 + (len - 2048 + 255) / 256;
  return 40 + (len - 8192 + kMaxSplit - 1) / kMaxSplit;
}
// The splits that hold some of these keys: [SplitOf(begin), NumSplits(end)).
KU_HOST_DEVICE int SplitOf(int pos) {
  return NumSplits(pos + 1) - 1;
}

// The part of a kernel's parameters that says what is to be done.
struct AttnWork {
  MatrixArg out, q;
  const int32_t* cu_q;     // [S + 1]
  const int32_t* kv_lens;  // [S]
  int num_seqs, kv_heads, group, head_dim;
  AttnMask mask;
  float scale_log2e;
  int block_heads;      // query heads of a block
  int block_positions;  // positions of a block
  int head_chunks;      // blocks that share the heads of a group
  bool split;           // one-row sequences are shared by blocks
  int max_splits;       // partial slots of a (sequence, kv head, chunk)
  float* partials;      // [slot][block_heads][2 + head_dim]: max, sum, output
  int32_t* tickets;     // [S][kv_heads][head_chunks]

  KU_HOST_DEVICE int64_t partial_floats() const {
    return static_cast<int64_t>(block_heads) * (2 + head_dim);
  }
};

// What is to be done for these arguments by blocks of up to `rows` rows (positions times heads), of
// which `resident` fit the device. *grid receives the number of blocks.
inline AttnWork PlanAttention(const AttentionScratch& scratch, const AttentionArgs& args, int rows,
                              int resident, int* grid) {
  const AttnMeta& meta = args.meta;
  AttnWork w{};
  w.out = AsArg(args.out);
  w.q = AsArg(args.q);
  w.cu_q = static_cast<const int32_t*>(meta.cu_seqlens_q.data);
  w.kv_lens = static_cast<const int32_t*>(meta.kv_lens.data);
  w.num_seqs = meta.num_seqs;
  w.kv_heads = args.kv.kv_heads;
  w.head_dim = args.kv.s.head_dim;
  w.group = static_cast<int>(args.q.shape[1]) / w.head_dim / w.kv_heads;
  w.mask = AsMask(args.options);
  w.scale_log2e = args.scale * kLog2E;
  w.block_heads = w.group < rows ? w.group : rows;
  w.block_positions = meta.max_q_len == 1 ? 1 : rows / w.block_heads;
  w.head_chunks = CeilDiv(w.group, w.block_heads);
  // Splitting pays while there are fewer than two waves.
  const int64_t heads = int64_t{1} * meta.num_seqs * w.kv_heads * w.head_chunks;
  w.max_splits = NumSplits(meta.max_kv_len);
  w.split = heads < 2 * resident && w.max_splits > 1 &&
            heads * w.max_splits * w.partial_floats() <= scratch.num_partials &&
            heads <= scratch.num_tickets;
  w.partials = scratch.partials;
  w.tickets = scratch.tickets;
  // Every sequence has at most one block of positions that is not full, or is split.
  const int64_t units =
      args.q.rows() / w.block_positions + int64_t{1} * meta.num_seqs * (w.split ? w.max_splits : 1);
  const int64_t items = units * w.kv_heads * w.head_chunks;
  *grid = static_cast<int>(items < resident ? items : resident);
  return w;
}

// Results of the splits so far, joined with those of the next one.
struct MergeFactors {
  float max, old_scale, new_scale;
};
__device__ __forceinline__ MergeFactors Merge(float max, float next_max) {
  const float both = fmaxf(max, next_max);
  return {both, exp2f(max - both), exp2f(next_max - both)};
}

// What a block works on: the rows of `positions` query positions times `heads` query heads.
struct AttnItem {
  int seq, kv_head, chunk;
  int split;  // -1: all of them
  int first_head;
  int q_row;  // of the first position
  int positions, heads;
  int first_pos;
  int kv_len;
  KeyRange keys;  // that some row sees
  __device__ __forceinline__ int rows() const { return positions * heads; }
  __device__ __forceinline__ int pos(int r) const { return first_pos + r / heads; }
  __device__ __forceinline__ int head(int r) const { return first_head + r % heads; }
  __device__ __forceinline__ int first_split() const {
    return split < 0 ? SplitOf(keys.begin) : split;
  }
  __device__ __forceinline__ int end_split() const {
    return split < 0 ? NumSplits(keys.end) : split + 1;
  }
  // Its keys in a split.
  __device__ __forceinline__ KeyRange KeysOf(int s) const {
    const int begin = SplitBegin(s), end = SplitBegin(s + 1);
    return {begin > keys.begin ? begin : keys.begin, end < keys.end ? end : keys.end};
  }
  __device__ __forceinline__ int slot(const AttnWork& w) const {
    return (seq * w.kv_heads + kv_head) * w.head_chunks + chunk;
  }
};

// Numbers the work items sequence by sequence, the longest rows of a sequence first. Find takes
// ascending indices, is called by all threads of the block and contains barriers.
class AttnItemList {
 public:
  __device__ AttnItemList(const AttnWork& w, int* counts) : w_(w), counts_(counts) {}

  __device__ bool Find(int index, AttnItem* item) {
    for (;;) {
      if (seq_ >= w_.num_seqs) return false;
      if (seq_ >= loaded_end_) LoadCounts();
      const int count = counts_[seq_ % kAttnThreads];
      if (index < first_ + count) break;
      first_ += count;
      ++seq_;
    }
    const int in_seq = index - first_;
    const int q_len = w_.cu_q[seq_ + 1] - w_.cu_q[seq_];
    const int per_head = w_.kv_heads * w_.head_chunks;
    item->seq = seq_;
    item->kv_len = w_.kv_lens[seq_];
    item->chunk = in_seq % w_.head_chunks;
    item->kv_head = in_seq / w_.head_chunks % w_.kv_heads;
    const int head = item->chunk * w_.block_heads;
    item->first_head = item->kv_head * w_.group + head;
    item->heads = w_.group - head < w_.block_heads ? w_.group - head : w_.block_heads;
    const bool split = w_.split && q_len == 1;
    const int blocks = (q_len + w_.block_positions - 1) / w_.block_positions;
    const int begin = split ? 0 : (blocks - 1 - in_seq / per_head) * w_.block_positions;
    item->q_row = w_.cu_q[seq_] + begin;
    item->positions = q_len - begin < w_.block_positions ? q_len - begin : w_.block_positions;
    item->first_pos = item->kv_len - q_len + begin;
    item->keys = {w_.mask.Keys(item->first_pos, item->kv_len).begin,
                  w_.mask.Keys(item->first_pos + item->positions - 1, item->kv_len).end};
    item->split = split ? SplitOf(item->keys.begin) + in_seq / per_head : -1;
    return true;
  }

 private:
  // Counts of the next kAttnThreads sequences.
  __device__ void LoadCounts() {
    __syncthreads();
    const int seq = seq_ + static_cast<int>(threadIdx.x);
    if (seq < w_.num_seqs) {
      const int q_len = w_.cu_q[seq + 1] - w_.cu_q[seq];
      int units = (q_len + w_.block_positions - 1) / w_.block_positions;
      if (w_.split && q_len == 1) {
        const KeyRange keys = w_.mask.Keys(w_.kv_lens[seq] - 1, w_.kv_lens[seq]);
        units = NumSplits(keys.end) - SplitOf(keys.begin);
      }
      counts_[threadIdx.x] = units * w_.kv_heads * w_.head_chunks;
    }
    loaded_end_ = seq_ + kAttnThreads;
    __syncthreads();
  }

  const AttnWork& w_;
  int* counts_;  // [kAttnThreads], shared
  int seq_ = 0, first_ = 0, loaded_end_ = 0;
};

// Where a block leaves row 0 of its split of a shared sequence; rows are 2 + head_dim apart.
__device__ __forceinline__ float* Partial(const AttnWork& w, const AttnItem& item, int split) {
  return w.partials +
         (static_cast<int64_t>(item.slot(w)) * w.max_splits + split) * w.partial_floats();
}

// The weighted sum of values over the sum of weights. -0 and 0 are one: a row whose sum has become
// -0 keeps it or not, depending on whether a tile that it does not see is left out.
__device__ __forceinline__ float Output(float out, float sum) {
  return out / sum + 0.0f;
}

__device__ __forceinline__ void StoreOutput(const AttnWork& w, const AttnItem& item, int r, int i,
                                            float x) {
  StoreAny(w.out.Row(item.q_row + r / item.heads), w.out.dtype,
           static_cast<int64_t>(item.head(r)) * w.head_dim + i, x);
}

// Called by the whole block when its split lies in Partial: the last block of a sequence and kv
// head merges all of them. `is_last` is shared.
__device__ __forceinline__ void FinishSplit(const AttnWork& w, const AttnItem& item, int* is_last) {
  const int tid = static_cast<int>(threadIdx.x);
  const int first = SplitOf(item.keys.begin), end = NumSplits(item.keys.end);
  __threadfence();
  __syncthreads();
  if (tid == 0) *is_last = atomicAdd(&w.tickets[item.slot(w)], 1) == end - first - 1;
  __syncthreads();
  if (*is_last == 0) return;
  __threadfence();
  const float* partials = Partial(w, item, first);
  for (int n = tid; n < item.rows() * w.head_dim; n += kAttnThreads) {
    const int r = n / w.head_dim, i = n % w.head_dim;
    const float* row = partials + r * (2 + w.head_dim);
    float max = -INFINITY, sum = 0.0f, out = 0.0f;
    for (int s = first; s < end; ++s, row += w.partial_floats()) {
      const MergeFactors f = Merge(max, __ldcg(row));
      max = f.max;
      sum = fmaf(__ldcg(row + 1), f.new_scale, sum * f.old_scale);
      out = fmaf(__ldcg(row + 2 + i), f.new_scale, out * f.old_scale);
    }
    StoreOutput(w, item, r, i, Output(out, sum));
  }
  if (tid == 0) w.tickets[item.slot(w)] = 0;
}

}  // namespace kuiper::KU_GPU
