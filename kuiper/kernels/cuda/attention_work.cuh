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

// Of the results of a row, in front of its output: max, sum, and two that align what follows.
constexpr int kPartialState = 4;

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
  float* partials;      // [part][block_heads][kPartialState + head_dim]
  int32_t* tickets;     // [S][kv_heads][head_chunks]

  KU_HOST_DEVICE int64_t partial_floats() const {
    return static_cast<int64_t>(block_heads) * (kPartialState + head_dim);
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

// Numbers the work items sequence by sequence, the longest rows of a sequence first; shared splits
// come before all that is a sequence's own, so that the blocks of its own splits, which are many,
// end last and merge. Find takes ascending indices, is called by all threads of the block and
// contains barriers.
class AttnItemList {
 public:
  __device__ AttnItemList(const AttnWork& w, int* counts)
      : w_(w), counts_(counts), block_seqs_(w.block_seqs) {
    if (w.split || w.shared_lens != nullptr) Divide();
    LoadCounts();
  }

  __device__ const SplitRuns& runs() const { return runs_; }

  __device__ bool Find(int index, AttnItem* item) {
    for (;;) {
      if (part_ >= w_.num_seqs) return false;
      const int count = CountOf(part_);
      if (index < first_ + count) break;
      first_ += count;
      if ((++part_ - first_part_) % kAttnThreads == 0) LoadCounts();
    }
    const bool shared = part_ < 0;
    const int seq = shared ? part_ + w_.num_seqs : part_;
    const int in_seq = index - first_;
    const int q_len = w_.cu_q[seq + 1] - w_.cu_q[seq];
    const int in_head = in_seq / (w_.kv_heads * w_.head_chunks);
    item->seq = seq;
    item->kv_len = w_.kv_lens[seq];
    item->chunk = in_seq % w_.head_chunks;
    item->kv_head = in_seq / w_.head_chunks % w_.kv_heads;
    const int head = item->chunk * w_.block_heads;
    item->first_head = item->kv_head * w_.group + head;
    item->heads = w_.group - head < w_.block_heads ? w_.group - head : w_.block_heads;
    const bool split = IsSplit(seq, q_len);
    const int blocks = (q_len + w_.block_positions - 1) / w_.block_positions;
    const int begin = split ? 0 : (blocks - 1 - in_head) * w_.block_positions;
    item->q_row = w_.cu_q[seq] + begin;
    item->positions = q_len - begin < w_.block_positions ? q_len - begin : w_.block_positions;
    item->first_pos = item->kv_len - q_len + begin;
    item->keys = {w_.mask.Keys(item->first_pos, item->kv_len).begin,
                  w_.mask.Keys(item->first_pos + item->positions - 1, item->kv_len).end};
    item->split = item->split_end = -1;
    if (shared) {
      item->split = SharedSplits(seq) + in_head;
      item->split_end = item->split + 1;
      while (SharedSplits(seq + item->positions) > item->split) ++item->positions;
      item->kv_len = SplitBegin(item->split_end);
      item->first_pos = item->kv_len - 1;
      item->keys = {0, item->kv_len};
    } else if (split && runs_.Count(SplitOf(item->keys.begin), item->keys) >
                            1) {  // a block that has all of them does not split
      const int first = FirstSplit(seq, item->keys), end = NumSplits(item->keys.end);
      const int run = runs_.RunOf(first) + in_head;
      const int run_begin = runs_.FirstSplit(run), run_end = runs_.FirstSplit(run + 1);
      item->split = run_begin > first ? run_begin : first;
      item->split_end = run_end < end ? run_end : end;
    }
    return true;
  }

 private:
  // Splits of a sequence that the block of the sequence before it computes, if blocks take this
  // many.
  __device__ int SharedSplits(int seq, int block_seqs) const {
    if (w_.shared_lens == nullptr || seq >= w_.num_seqs || seq % block_seqs == 0) return 0;
    return SplitOf(w_.shared_lens[seq]);
  }
  __device__ int SharedSplits(int seq) const { return SharedSplits(seq, block_seqs_); }
  __device__ bool IsSplit(int seq, int q_len) const {
    return q_len == 1 && (w_.split || SharedSplits(seq) > 0 || SharedSplits(seq + 1) > 0);
  }
  // The first split that no other sequence shares.
  __device__ int FirstSplit(int seq, const KeyRange& keys) const {
    const int before = SharedSplits(seq), behind = SharedSplits(seq + 1);
    const int shared = before > behind ? before : behind, first = SplitOf(keys.begin);
    return shared > first ? shared : first;
  }
  // Chooses among up to 16 ways to divide the work the one that lets the blocks end soonest, as far
  // as the lengths tell. Where nothing is shared these are lengths of runs. Shared splits are
  // computed one by one, for as few sequences at a time as leave each block one of them at most:
  // the block that ends last has to merge for all of its sequences.
  __device__ void Divide() {
    constexpr int kLanes = 8;           // for one of them
    constexpr int kTokensOfItem = 256;  // what an item costs beside its tokens
    constexpr int kShares = 3;          // of block_seqs: all, 1/2, 1/4
    const int tid = static_cast<int>(threadIdx.x), mine = tid / kLanes;
    const SplitRuns runs{RunTokens(mine)};
    const int block_seqs = BlockSeqs(mine < kShares ? mine : 0);
    int count = 0, longest = 1;
    int shared_count = 0, shares = 0;
    for (int seq = tid % kLanes; seq < w_.num_seqs; seq += kLanes) {
      if (w_.cu_q[seq + 1] - w_.cu_q[seq] != 1) continue;
      const int shared = SharedSplits(seq, block_seqs), next = SharedSplits(seq + 1, block_seqs);
      if (next > shared) shared_count += next - shared;
      shares |= SharedSplits(seq, w_.block_seqs);
      const int len = w_.kv_lens[seq];
      const KeyRange keys = w_.mask.Keys(len - 1, len);
      count += runs.Count(SplitOf(keys.begin), keys);
      longest = len > longest ? len : longest;
    }
#pragma unroll
    for (int lane = 1; lane < kLanes; lane *= 2) {
      count += __shfl_xor_sync(kFullWarp, count, lane);
      shared_count += __shfl_xor_sync(kFullWarp, shared_count, lane);
      shares |= __shfl_xor_sync(kFullWarp, shares, lane);
      const int other = __shfl_xor_sync(kFullWarp, longest, lane);
      longest = other > longest ? other : longest;
    }
    const int blocks = static_cast<int>(gridDim.x), of_seq = w_.kv_heads * w_.head_chunks;
    const int turns = (count * of_seq + blocks - 1) / blocks;
    float cost =
        static_cast<float>(turns) * static_cast<float>(runs.Longest(longest) + kTokensOfItem);
    if (shares != 0) {
      const bool fits = mine == 0 || (mine < kShares && shared_count * of_seq <= blocks);
      cost = fits ? static_cast<float>(block_seqs) : INFINITY;
    }
    const int best = Cheapest<kLanes>(cost);
    if (shares != 0) {
      block_seqs_ = BlockSeqs(best);
      part_ = first_part_ = -w_.num_seqs;
    } else {
      runs_.tokens = RunTokens(best);
    }
  }
  // The first n whose cost, of threads [n * kLanes, n * kLanes + kLanes), is the lowest.
  template <int kLanes>
  __device__ int Cheapest(float cost) const {
    constexpr int kCount = kAttnThreads / kLanes;
    const int tid = static_cast<int>(threadIdx.x);
    auto* const costs = reinterpret_cast<float*>(counts_);
    if (tid % kLanes == 0) costs[tid / kLanes] = cost;
    __syncthreads();
    int best = tid % kCount;
    cost = costs[best];
#pragma unroll
    for (int lane = 1; lane < kCount; lane *= 2) {
      const float other_cost = __shfl_xor_sync(kFullWarp, cost, lane);
      const int other = __shfl_xor_sync(kFullWarp, best, lane);
      if (other_cost < cost || (other_cost == cost && other < best)) {
        cost = other_cost;
        best = other;
      }
    }
    __syncthreads();  // LoadCounts writes there
    return best;
  }
  __device__ int BlockSeqs(int halvings) const {
    constexpr int kFewest = 4;  // that make a shared split worth it
    const int seqs = w_.block_seqs >> halvings;
    return w_.block_seqs < kFewest ? w_.block_seqs : seqs < kFewest ? kFewest : seqs;
  }
  // 0, 256, multiples of 512 up to 4096, then about half as much again each time; the last is all.
  __device__ static int RunTokens(int i) {
    if (i <= 1) return i * SplitRuns::kPairs;
    if (i <= 9) return (i - 1) * kMaxSplit;
    return i < 15 ? (i % 2 == 0 ? 6144 : 8192) << (i - 10) / 2 : 1 << 30;
  }

  // The items of part_ and of the kAttnThreads - 1 parts behind it.
  __device__ void LoadCounts() {
    __syncthreads();
    const int part = part_ + static_cast<int>(threadIdx.x);
    if (part < w_.num_seqs) counts_[threadIdx.x] = Units(part) * w_.kv_heads * w_.head_chunks;
    __syncthreads();
  }
  __device__ int CountOf(int part) const {
    return counts_[(part - first_part_) % kAttnThreads];
  }
  __device__ int Units(int part) const {
    if (part < 0) {
      const int seq = part + w_.num_seqs;
      const int more = SharedSplits(seq + 1) - SharedSplits(seq);
      return more > 0 ? more : 0;
    }
    const int q_len = w_.cu_q[part + 1] - w_.cu_q[part];
    if (!IsSplit(part, q_len)) return (q_len + w_.block_positions - 1) / w_.block_positions;
    const KeyRange keys = w_.mask.Keys(w_.kv_lens[part] - 1, w_.kv_lens[part]);
    return runs_.Count(FirstSplit(part, keys), keys);
  }

  const AttnWork& w_;
  int* counts_;  // [kAttnThreads], shared
  SplitRuns runs_;
  int block_seqs_;
  // The splits that sequence s shares with the one behind it are part s - num_seqs, its own are s.
  int part_ = 0, first_part_ = 0;
  int first_ = 0;  // of the part's items
};

// Where a block leaves row r of its split: max, sum, output.
__device__ __forceinline__ float* Partial(const AttnWork& w, const AttnItem& item, int r,
                                          int split) {
  const int64_t part = item.ticket(w, r / item.heads);
  return w.partials + (part * w.max_splits + split) * w.partial_floats() +
         r % item.heads * (kPartialState + w.head_dim);
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

// Floats that another block may have written, aligned as a whole.
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

// Merges all splits of row r, whose outputs this thread stores from column i on.
template <int kColumns>
__device__ __forceinline__ void MergeRow(const AttnWork& w, const AttnItem& item, int r, int i,
                                         int first, int end) {
  const float* row = Partial(w, item, r, first);
  float max = -INFINITY, sum = 0.0f, out[kColumns] = {};
#pragma unroll 8  // what is loaded ahead of the merges, which wait for each other
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
#pragma unroll
  for (int c = 0; c < kColumns; ++c) StoreOutput(w, item, r, i + c, Output(out[c], sum));
}

// Merges the rows of the item's sequences whose last block this is.
template <int kColumns>
__device__ __forceinline__ void MergeSequences(const AttnWork& w, const AttnItem& item,
                                               const int* is_last) {
  const int vectors = w.head_dim / kColumns, of_seq = item.heads * vectors;
  for (int n = static_cast<int>(threadIdx.x); n < item.positions * of_seq; n += kAttnThreads) {
    const int seq = n / of_seq;
    if (is_last[seq] == 0) continue;
    const int len = w.kv_lens[item.seq + seq];
    const KeyRange keys = w.mask.Keys(len - 1, len);
    MergeRow<kColumns>(w, item, n / vectors, n % vectors * kColumns, SplitOf(keys.begin),
                       NumSplits(keys.end));
  }
}

// Called by the whole block when its splits lie in Partial: the last block of a sequence and kv
// head merges all of them. `is_last` [kMaxBlockSeqs] is shared.
__device__ __forceinline__ void FinishSplits(const AttnWork& w, const AttnItem& item,
                                             const SplitRuns& runs, int* is_last) {
  const int tid = static_cast<int>(threadIdx.x);
  __threadfence();
  __syncthreads();
  if (tid < item.positions) {
    const int len = w.kv_lens[item.seq + tid];
    const KeyRange keys = w.mask.Keys(len - 1, len);
    int32_t& ticket = w.tickets[item.ticket(w, tid)];
    is_last[tid] = atomicAdd(&ticket, 1) == runs.Count(SplitOf(keys.begin), keys) - 1;
    if (is_last[tid] != 0) ticket = 0;  // nobody else is left to take it
    __threadfence();
  }
  __syncthreads();
  if (w.head_dim % 4 == 0) {
    MergeSequences<4>(w, item, is_last);
  } else {
    MergeSequences<2>(w, item, is_last);
  }
}

}  // namespace kuiper::KU_GPU
