// How the flash kernels divide their work, and how results are put together again.
//
// The keys of a sequence are cut into splits at fixed absolute positions (SplitBegin). Every split
// of a row gives (max, sum, output); these are merged in ascending order. A row's bits therefore
// depend on its own position and length only, and who computes a split is free:
//   * a sequence with one query row gives its splits, in runs of one or more, to blocks of their
//     own; the last one to finish merges (a ticket per sequence and kv head);
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

// How many splits that follow each other a block takes of a sequence: those that begin in the same
// `tokens` tokens, a multiple of 512 and so of every split, or two of the shortest; 0: one split.
struct SplitRuns {
  static constexpr int kPairs = 256;
  int tokens = 0;

  __device__ __forceinline__ int RunOf(int split) const {
    if (tokens == 0) return split;
    if (tokens == kPairs) return split <= 16 ? split / 2 : split - 8;
    return SplitBegin(split) / tokens;
  }
  __device__ __forceinline__ int FirstSplit(int run) const {
    if (tokens == 0) return run;
    if (tokens == kPairs) return run <= 8 ? 2 * run : run + 8;
    return SplitOf(run * tokens);
  }
  // Runs of a row that sees these keys, from split `first` on.
  __device__ __forceinline__ int Count(int first, const KeyRange& keys) const {
    return RunOf(NumSplits(keys.end) - 1) - RunOf(first) + 1;
  }
  // The tokens of a run in a sequence of `len`, at most.
  __device__ __forceinline__ int Longest(int len) const {
    if (tokens > kPairs) return tokens < len ? tokens : len;
    return len > 8192 ? kMaxSplit : len > 2048 || tokens == kPairs ? 256 : 128;
  }
};

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
  int split;  // the first of its run; -1: all of them
  int split_end;
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
    return split < 0 ? NumSplits(keys.end) : split_end;
  }
  // Its keys in splits [first, last).
  __device__ __forceinline__ KeyRange KeysOf(int first, int last) const {
    const int begin = SplitBegin(first), end = SplitBegin(last);
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
  __device__ AttnItemList(const AttnWork& w, int* counts) : w_(w), counts_(counts) {
    if (w.split) runs_.tokens = ChooseRuns();
  }

  __device__ const SplitRuns& runs() const { return runs_; }

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
    item->split = item->split_end = -1;
    if (split) {
      const int first = FirstSplit(seq_, item->keys), end = NumSplits(item->keys.end);
      const int run = runs_.RunOf(first) + in_seq / per_head;
      const int run_begin = runs_.FirstSplit(run), run_end = runs_.FirstSplit(run + 1);
      item->split = run_begin > first ? run_begin : first;
      item->split_end = run_end < end ? run_end : end;
    }
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
  // The tokens of a run that let the blocks end soonest, of 16 that are compared.
  __device__ int ChooseRuns() const {
    constexpr int kLanes = 8;           // for one of them
    constexpr int kTokensOfItem = 256;  // what an item costs beside its tokens
    const int tid = static_cast<int>(threadIdx.x), mine = tid / kLanes;
    const SplitRuns runs{RunTokens(mine)};
    int count = 0, longest = 1;
    int shares = 0;  // splits that several sequences share are computed one by one
    for (int seq = tid % kLanes; seq < w_.num_seqs; seq += kLanes) {
      if (w_.cu_q[seq + 1] - w_.cu_q[seq] != 1) continue;
      shares |= SharedSplits(seq);
      const int len = w_.kv_lens[seq];
      const KeyRange keys = w_.mask.Keys(len - 1, len);
      count += runs.Count(SplitOf(keys.begin), keys);
      longest = len > longest ? len : longest;
    }
#pragma unroll
    for (int lane = 1; lane < kLanes; lane *= 2) {
      count += __shfl_xor_sync(kFullWarp, count, lane);
      shares |= __shfl_xor_sync(kFullWarp, shares, lane);
      const int other = __shfl_xor_sync(kFullWarp, longest, lane);
      longest = other > longest ? other : longest;
    }
    const int blocks = static_cast<int>(gridDim.x);
    const int turns = (count * w_.kv_heads * w_.head_chunks + blocks - 1) / blocks;
    auto* const costs = reinterpret_cast<float*>(counts_);
    if (tid % kLanes == 0) {
      const float cost =
          static_cast<float>(turns) * static_cast<float>(runs.Longest(longest) + kTokensOfItem);
      costs[mine] = shares != 0 && mine != 0 ? INFINITY : cost;
    }
    __syncthreads();
    // The first of the cheapest.
    int best = tid % (kAttnThreads / kLanes);
    float cost = costs[best];
#pragma unroll
    for (int lane = 1; lane < kAttnThreads / kLanes; lane *= 2) {
      const float other_cost = __shfl_xor_sync(kFullWarp, cost, lane);
      const int other = __shfl_xor_sync(kFullWarp, best, lane);
      if (other_cost < cost || (other_cost == cost && other < best)) {
        cost = other_cost;
        best = other;
      }
    }
    __syncthreads();  // LoadCounts writes there
    return RunTokens(best);
  }
  // 0, 256, multiples of 512 up to 4096, then about half as much again each time; the last is all.
  __device__ static int RunTokens(int i) {
    if (i <= 1) return i * SplitRuns::kPairs;
    if (i <= 9) return (i - 1) * kMaxSplit;
    return i < 15 ? (i % 2 == 0 ? 6144 : 8192) << (i - 10) / 2 : 1 << 30;
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
        units = runs_.Count(FirstSplit(seq, keys), keys);
      }
      counts_[threadIdx.x] = units * w_.kv_heads * w_.head_chunks;
    }
    loaded_end_ = seq_ + kAttnThreads;
    __syncthreads();
  }

  const AttnWork& w_;
  int* counts_;  // [kAttnThreads], shared
  SplitRuns runs_;
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

// Merges all splits of row r, whose outputs this thread stores from column i on.
template <int kColumns>
__device__ __forceinline__ void MergeRow(const AttnWork& w, const AttnItem& item, int r, int i,
                                         int first, int end) {
  const float* row = Partial(w, item, r, first);
  float max = -INFINITY, sum = 0.0f, out[kColumns] = {};
#pragma unroll 4
  for (int s = first; s < end; ++s, row += w.partial_floats()) {
    const MergeFactors f = Merge(max, __ldcg(row));
    max = f.max;
    sum = fmaf(__ldcg(row + 1), f.new_scale, sum * f.old_scale);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      out[c] = fmaf(__ldcg(row + 2 + i + c), f.new_scale, out[c] * f.old_scale);
    }
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) StoreOutput(w, item, r, i + c, Output(out[c], sum));
}

// Called by the whole block when its splits lie in Partial: the last block of a sequence and kv
// head merges all of them. `is_last` [kMaxBlockSeqs] is shared.
__device__ __forceinline__ void FinishSplits(const AttnWork& w, const AttnItem& item,
                                             const SplitRuns& runs, int* is_last) {
  constexpr int kColumns = 4;  // of a thread, where heads allow it
  const int tid = static_cast<int>(threadIdx.x);
  const auto keys = [&](int n) {
    const int len = w.kv_lens[item.seq + n];
    return w.mask.Keys(len - 1, len);
  };
  __threadfence();
  __syncthreads();
  if (tid < item.positions) {
    const int count = runs.Count(SplitOf(keys(tid).begin), keys(tid));
    is_last[tid] = atomicAdd(&w.tickets[item.ticket(w, tid)], 1) == count - 1;
    __threadfence();
  }
  __syncthreads();
  const int columns = w.head_dim % kColumns == 0 ? kColumns : 1;
  for (int n = 0; n < item.positions; ++n) {
    if (is_last[n] == 0) continue;
    const int first = SplitOf(keys(n).begin), end = NumSplits(keys(n).end);
    for (int at = tid * columns; at < item.heads * w.head_dim; at += kAttnThreads * columns) {
      const int r = n * item.heads + at / w.head_dim, i = at % w.head_dim;
      if (columns == kColumns) {
        MergeRow<kColumns>(w, item, r, i, first, end);
      } else {
        MergeRow<1>(w, item, r, i, first, end);
      }
    }
    if (tid == 0) w.tickets[item.ticket(w, n)] = 0;
  }
}

}  // namespace kuiper::KU_GPU
