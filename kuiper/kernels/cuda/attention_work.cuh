// How the flash kernels divide their work, and how results are put together again.
//
// The keys of a sequence are cut into splits at fixed absolute positions (SplitBegin). Every split
// of a row gives (max, sum, output); these are merged in ascending order. A row's bits therefore
// depend on its own position and length only, and who computes a split is free:
//   * a sequence with one query row gives each split to a block of its own; the last one to finish
//     merges (a ticket per sequence and kv head);
//   * other sequences, and batches large enough to fill the device, run their splits one after the
//     other in one block and merge as they go: the same numbers in the same order;
//   * a split whose keys several sequences share (AttnMeta::shared_lens) is computed by one block
//     for the rows of as many of them as fit, as if they were positions behind it; each row goes to
//     its own sequence's results.
// Splits in which a row sees no key are left out. Work items are found on the device from the
// sequence lengths, over a grid that is fixed on the host, so a captured launch fits every length.
#pragma once

#include <algorithm>

#include "kuiper/kernels/cuda/attention_call.cuh"

namespace kuiper::KU_GPU {

constexpr int kAttnThreads = 128;  // of a block
constexpr int kMaxBlockSeqs = 64;  // sequences of a block

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
struct AttnWork : AttnCall {
  int block_heads;      // query heads of a block
  int block_positions;  // positions of a block
  int head_chunks;      // blocks that share the heads of a group
  int block_seqs;       // sequences of a block that computes a shared split
  bool split;           // blocks share every one-row sequence, not only those with shared keys
  int max_splits;       // partial results of a (sequence, kv head, chunk)
  float* partials;      // [part][block_heads][2 + head_dim]: max, sum, output
  int32_t* tickets;     // [S][kv_heads][head_chunks]

  KU_HOST_DEVICE int64_t partial_floats() const {
    return static_cast<int64_t>(block_heads) * (2 + head_dim);
  }
};

// Divides this call among blocks of up to `rows` rows (positions times heads), of which an SM runs
// `most` at once if it has that much shared memory: `block_bytes` each. *grid receives the number
// of blocks.
inline AttnWork PlanAttention(const Resources& resources, const AttnCall& call, int rows, int most,
                              size_t block_bytes, int* grid) {
  constexpr size_t kSystemBytes = 1024;  // of each block
  const size_t fit = resources.sm_shared_bytes / (block_bytes + kSystemBytes);
  const int resident = resources.num_sms * static_cast<int>(std::clamp<size_t>(fit, 1, most));
  AttnWork w{};
  static_cast<AttnCall&>(w) = call;
  w.block_heads = w.group < rows ? w.group : rows;
  w.block_positions = w.max_q_len == 1 ? 1 : rows / w.block_heads;
  w.head_chunks = CeilDiv(w.group, w.block_heads);
  // Splitting pays while there are fewer than two waves.
  const int64_t heads = int64_t{1} * w.num_seqs * w.kv_heads * w.head_chunks;
  w.max_splits = NumSplits(w.max_kv_len);
  const bool can_split = w.max_splits > 1 &&
                         heads * w.max_splits * w.partial_floats() <= resources.num_partials &&
                         heads <= resources.num_tickets;
  w.split = can_split && heads < 2 * resident;
  w.block_seqs = rows / w.block_heads;
  // Rows of other sequences stand at positions that are not theirs: no window, no ALiBi.
  const bool can_share = can_split && w.mask.window == 0 && w.mask.slopes == nullptr;
  if (!can_share) w.shared_lens = nullptr;
  w.partials = resources.partials;
  w.tickets = resources.tickets;
  // Every sequence has at most one block of positions that is not full, or is split.
  const int64_t units =
      w.rows / w.block_positions +
      int64_t{1} * w.num_seqs * (w.split || w.shared_lens != nullptr ? w.max_splits : 1);
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

// The work of a block: the rows of `positions` query positions times `heads` query heads. With
// shared keys the positions are those of `positions` sequences from `seq` on, one each.
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
  // The index of the ticket and of the partial results of its n-th sequence.
  __device__ __forceinline__ int ticket(const AttnWork& w, int n) const {
    return ((seq + n) * w.kv_heads + kv_head) * w.head_chunks + chunk;
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
    const bool split = IsSplit(seq_, q_len);
    const int blocks = (q_len + w_.block_positions - 1) / w_.block_positions;
    const int begin = split ? 0 : (blocks - 1 - in_seq / per_head) * w_.block_positions;
    item->q_row = w_.cu_q[seq_] + begin;
    item->positions = q_len - begin < w_.block_positions ? q_len - begin : w_.block_positions;
    item->first_pos = item->kv_len - q_len + begin;
    item->keys = {w_.mask.Keys(item->first_pos, item->kv_len).begin,
                  w_.mask.Keys(item->first_pos + item->positions - 1, item->kv_len).end};
    item->split = split ? FirstSplit(seq_, item->keys) + in_seq / per_head : -1;
    while (split && SharedSplits(seq_ + item->positions) > item->split) ++item->positions;
    if (split && item->positions > 1) {
      item->kv_len = SplitBegin(item->split + 1);
      item->first_pos = item->kv_len - 1;
      item->keys = {0, item->kv_len};
    }
    return true;
  }

 private:
  // Splits of a sequence that the block of the sequence before it computes.
  __device__ int SharedSplits(int seq) const {
    if (w_.shared_lens == nullptr || seq >= w_.num_seqs || seq % w_.block_seqs == 0) return 0;
    return SplitOf(w_.shared_lens[seq]);
  }
  __device__ bool IsSplit(int seq, int q_len) const {
    return q_len == 1 && (w_.split || SharedSplits(seq) > 0 || SharedSplits(seq + 1) > 0);
  }
  // The first one that is the sequence's own.
  __device__ int FirstSplit(int seq, const KeyRange& keys) const {
    const int shared = SharedSplits(seq), first = SplitOf(keys.begin);
    return shared > first ? shared : first;
  }
  // Counts of the next kAttnThreads sequences.
  __device__ void LoadCounts() {
    __syncthreads();
    const int seq = seq_ + static_cast<int>(threadIdx.x);
    if (seq < w_.num_seqs) {
      const int q_len = w_.cu_q[seq + 1] - w_.cu_q[seq];
      int units = (q_len + w_.block_positions - 1) / w_.block_positions;
      if (IsSplit(seq, q_len)) {
        const KeyRange keys = w_.mask.Keys(w_.kv_lens[seq] - 1, w_.kv_lens[seq]);
        units = NumSplits(keys.end) - FirstSplit(seq, keys);
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

// Where a block leaves row r of its split: max, sum, output.
__device__ __forceinline__ float* Partial(const AttnWork& w, const AttnItem& item, int r,
                                          int split) {
  const int64_t part = item.ticket(w, r / item.heads);
  return w.partials + (part * w.max_splits + split) * w.partial_floats() +
         r % item.heads * (2 + w.head_dim);
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
// head merges all of them. `is_last` [kMaxBlockSeqs] is shared.
__device__ __forceinline__ void FinishSplit(const AttnWork& w, const AttnItem& item, int* is_last) {
  const int tid = static_cast<int>(threadIdx.x);
  const auto keys = [&](int n) {
    const int len = w.kv_lens[item.seq + n];
    return w.mask.Keys(len - 1, len);
  };
  __threadfence();
  __syncthreads();
  if (tid < item.positions) {
    const int splits = NumSplits(keys(tid).end) - SplitOf(keys(tid).begin);
    is_last[tid] = atomicAdd(&w.tickets[item.ticket(w, tid)], 1) == splits - 1;
    __threadfence();
  }
  __syncthreads();
  for (int n = 0; n < item.positions; ++n) {
    if (is_last[n] == 0) continue;
    const int first = SplitOf(keys(n).begin), end = NumSplits(keys(n).end);
    for (int at = tid; at < item.heads * w.head_dim; at += kAttnThreads) {
      const int r = n * item.heads + at / w.head_dim, i = at % w.head_dim;
      const float* row = Partial(w, item, r, first);
      float max = -INFINITY, sum = 0.0f, out = 0.0f;
      for (int s = first; s < end; ++s, row += w.partial_floats()) {
        const MergeFactors f = Merge(max, __ldcg(row));
        max = f.max;
        sum = fmaf(__ldcg(row + 1), f.new_scale, sum * f.old_scale);
        out = fmaf(__ldcg(row + 2 + i), f.new_scale, out * f.old_scale);
      }
      StoreOutput(w, item, r, i, Output(out, sum));
    }
    if (tid == 0) w.tickets[item.ticket(w, n)] = 0;
  }
}

}  // namespace kuiper::KU_GPU
