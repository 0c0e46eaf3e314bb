// How the flash kernels divide their work; attention_partials.cuh merges the results.
//
// The keys of a sequence are cut into splits at fixed absolute positions (SplitBegin). Every split
// of a row gives (max, sum, output); these are merged in ascending order. So a row's bits depend
// only on its own position and length, and any block may compute a split.
//   * A sequence with one query row gives its splits, in runs of one or more, to separate blocks.
//     The last block to finish merges them (one ticket per sequence and kv head).
//   * Other sequences, and batches large enough to fill the device, run all their splits in one
//     block. It merges them one by one: the same numbers in the same order.
//   * A split whose keys several sequences share (AttnMeta::shared_lens) is computed by one block
//     for the rows of several of them, as if these were positions after the split. Each row's
//     result is stored with its own sequence.
// Splits in which a row attends to no key are skipped. Work items are found on the device from the
// sequence lengths. The grid is fixed on the host, so a captured launch fits every length.
#pragma once

#include <algorithm>

#include "kuiper/kernels/cuda/attention_call.cuh"

namespace kuiper::KU_GPU {

constexpr int kAttnThreads = 128;  // minimum threads of a block
constexpr int kMaxBlockSeqs = 64;  // maximum sequences of a block
// A block that has all splits of a sequence, at most this many, merges them one by one.
constexpr int kFewSplits = 4;

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
// The splits that contain keys [begin, end) are [SplitOf(begin), NumSplits(end)).
KU_HOST_DEVICE int SplitOf(int pos) {
  return NumSplits(pos + 1) - 1;
}

// Floats stored before a row's partial output: max, sum, and two unused ones for alignment.
constexpr int kPartialState = 4;

// Groups consecutive splits of a sequence into runs; a block computes one run. A run contains the
// splits that begin in the same `tokens` tokens, a multiple of 512 and so of every split. With
// kPairs a run is two of the shortest splits or one longer split; with 0 it is one split.
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
  // Returns the number of runs of a row that attends to `keys`, from split `first` on.
  __device__ __forceinline__ int Count(int first, const KeyRange& keys) const {
    return RunOf(NumSplits(keys.end) - 1) - RunOf(first) + 1;
  }
  // Returns the maximum tokens of a run in a sequence of `len` tokens.
  __device__ __forceinline__ int Longest(int len) const {
    if (tokens > kPairs) return tokens < len ? tokens : len;
    return len > 8192 ? kMaxSplit : len > 2048 || tokens == kPairs ? 256 : 128;
  }
};

// The kernel parameters that describe the work.
struct AttnWork : AttnCall {
  int block_heads;      // query heads of a block
  int block_positions;  // positions of a block
  int head_chunks;      // blocks that share the heads of a group
  int block_seqs;       // sequences of a block that computes a shared split
  bool split;           // blocks share every one-row sequence, not only those with shared keys
  int max_splits;       // partial results of a (sequence, kv head, chunk)
  float* partials;      // [part][block_heads][kPartialState + head_dim]
  int32_t* tickets;     // [S][kv_heads][head_chunks]

  // Returns the keys that the last row of a sequence attends to; a decode step has only this row.
  __device__ __forceinline__ KeyRange LastKeys(int seq) const {
    return mask.Keys(kv_lens[seq] - 1, kv_lens[seq]);
  }
  KU_HOST_DEVICE int64_t partial_floats() const {
    return static_cast<int64_t>(block_heads) * (kPartialState + head_dim);
  }
};

// Divides this call among blocks of up to `rows` rows (positions times heads). An SM runs at most
// `most` blocks at once, fewer if its shared memory does not suffice for `block_bytes` each. *grid
// receives the blocks: x is the part of the heads that a block computes, y divides the work among
// blocks of the same x.
inline AttnWork PlanAttention(const Resources& resources, const AttnCall& call, int rows, int most,
                              size_t block_bytes, dim3* grid) {
  constexpr size_t kSystemBytes = 1024;  // shared memory that CUDA reserves per block
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
  // Sharing computes rows of other sequences at wrong positions, so it excludes a window and ALiBi.
  const bool can_share = can_split && w.mask.window == 0 && w.mask.slopes == nullptr;
  if (!can_share) w.shared_lens = nullptr;
  w.partials = resources.partials;
  w.tickets = resources.tickets;
  // Every sequence has at most one partly filled block of positions, or is split.
  const int64_t units =
      w.rows / w.block_positions +
      int64_t{1} * w.num_seqs * (w.split || w.shared_lens != nullptr ? w.max_splits : 1);
  const int x = w.kv_heads * w.head_chunks, most_y = std::max(resident / x, 1);
  grid->x = static_cast<unsigned>(x);
  grid->y = static_cast<unsigned>(std::min<int64_t>(units, most_y));
  return w;
}

// The work of a block: the rows of `positions` query positions times `heads` query heads. For a
// shared split the positions belong to `positions` sequences from `seq` on, one each.
struct AttnItem {
  int seq, kv_head, chunk;
  int split;  // first split of the run; -1: all splits
  int split_end;
  int first_head;
  int q_row;  // query row of the first position
  int positions, heads;
  int first_pos;
  int kv_len;
  KeyRange keys;  // keys that at least one row attends to
  __device__ __forceinline__ int rows() const { return positions * heads; }
  __device__ __forceinline__ int position(int r) const { return positions == 1 ? 0 : r / heads; }
  __device__ __forceinline__ int pos(int r) const { return first_pos + position(r); }
  __device__ __forceinline__ int head(int r) const { return first_head + r - position(r) * heads; }
  __device__ __forceinline__ int first_split() const {
    return split < 0 ? SplitOf(keys.begin) : split;
  }
  __device__ __forceinline__ int end_split() const {
    return split < 0 ? NumSplits(keys.end) : split_end;
  }
  // Returns the item's keys in splits [first, last).
  __device__ __forceinline__ KeyRange KeysOf(int first, int last) const {
    const int begin = SplitBegin(first), end = SplitBegin(last);
    return {begin > keys.begin ? begin : keys.begin, end < keys.end ? end : keys.end};
  }
  // Returns the index of the ticket and of the partial results of the item's n-th sequence.
  __device__ __forceinline__ int ticket(const AttnWork& w, int n) const {
    return ((seq + n) * w.kv_heads + kv_head) * w.head_chunks + chunk;
  }
};

// Numbers the work items of blockIdx.x (a kv head and a chunk of its query heads), sequence by
// sequence, the longest rows of a sequence first. Shared splits come before all items of single
// sequences. So a sequence's own blocks mostly end last and merge; otherwise the last block of a
// shared split would have to merge for many sequences. Find takes ascending indices. The
// constructor and Find contain barriers: all threads of the block must call them.
class AttnItemList {
 public:
  __device__ AttnItemList(const AttnWork& w, int* counts) : w_(w), counts_(counts) {
    if (w.num_seqs == 1) {
      DivideOne();
      return;
    }
    if (w.split || w.shared_lens != nullptr) Divide();
    LoadCounts();
  }

  __device__ const SplitRuns& runs() const { return runs_; }

  __device__ bool Find(int index, AttnItem* item) {
    for (;;) {
      if (part_ >= w_.num_seqs) return false;
      const int count = w_.num_seqs == 1 ? one_count_ : CountOf(part_);
      if (index < first_item_ + count) break;
      first_item_ += count;
      if (w_.num_seqs == 1) return false;
      if ((++part_ - first_part()) % kAttnThreads == 0) LoadCounts();
    }
    const bool shared = part_ < 0;
    const int unit = index - first_item_;
    const int x = static_cast<int>(blockIdx.x);
    item->seq = shared ? part_ + w_.num_seqs : part_;
    item->kv_head = w_.head_chunks == 1 ? x : x / w_.head_chunks;
    item->chunk = x - item->kv_head * w_.head_chunks;
    const int head = item->chunk * w_.block_heads;
    item->first_head = item->kv_head * w_.group + head;
    item->heads = w_.group - head < w_.block_heads ? w_.group - head : w_.block_heads;
    if (shared) {
      SetShared(unit, item);
    } else {
      SetOwn(unit, item);
    }
    return true;
  }

 private:
  // Sets one split shared by consecutive sequences; their query rows all attend to every key of it.
  __device__ void SetShared(int unit, AttnItem* item) const {
    item->split = SharedWithPrevious(item->seq) + unit;
    item->split_end = item->split + 1;
    item->q_row = w_.cu_q[item->seq];
    item->positions = 1;
    while (SharedWithPrevious(item->seq + item->positions) > item->split) ++item->positions;
    item->kv_len = SplitBegin(item->split_end);
    item->first_pos = item->kv_len - 1;
    item->keys = {0, item->kv_len};
  }
  // Sets a run of splits that only this sequence has, or some of its positions with all their keys.
  __device__ void SetOwn(int unit, AttnItem* item) const {
    const int seq = item->seq, q_len = w_.cu_q[seq + 1] - w_.cu_q[seq];
    const bool split = IsSplit(seq, q_len);
    const int begin = split ? 0 : (Blocks(q_len) - 1 - unit) * w_.block_positions;
    item->kv_len = w_.kv_lens[seq];
    item->q_row = w_.cu_q[seq] + begin;
    item->positions = q_len - begin < w_.block_positions ? q_len - begin : w_.block_positions;
    item->first_pos = item->kv_len - q_len + begin;
    item->keys = {w_.mask.Keys(item->first_pos, item->kv_len).begin,
                  w_.mask.Keys(item->first_pos + item->positions - 1, item->kv_len).end};
    item->split = item->split_end = -1;
    if (!split) return;
    const int first = FirstOwnSplit(seq, item->keys), end = NumSplits(item->keys.end);
    const int run = runs_.RunOf(first) + unit;
    const int run_begin = runs_.FirstSplit(run), run_end = runs_.FirstSplit(run + 1);
    const int own_begin = run_begin > first ? run_begin : first;
    const int own_end = run_end < end ? run_end : end;
    const bool all = own_begin == SplitOf(item->keys.begin) && own_end == end;
    if (all && own_end - own_begin <= kFewSplits) return;
    item->split = own_begin;
    item->split_end = own_end;
  }

  // Returns the leading splits that a sequence shares with the previous one in the same block, if a
  // block takes block_seqs sequences. Most sequences share nothing, so the remainder is computed
  // last.
  __device__ int SharedWithPrevious(int seq, int block_seqs) const {
    if (seq == 0 || seq >= w_.num_seqs) return 0;
    const int splits = SplitOf(w_.shared_lens[seq]);
    return splits == 0 || seq % block_seqs == 0 ? 0 : splits;
  }
  __device__ int SharedWithPrevious(int seq) const {
    return block_seqs_ > 0 ? SharedWithPrevious(seq, block_seqs_) : 0;
  }
  // all: splits of a sequence that shared items compute; begun: those of these items whose first
  // sequence it is.
  struct Sharing {
    int all, begun;
  };
  __device__ Sharing SharingOf(int seq, int block_seqs) const {
    const int before = SharedWithPrevious(seq, block_seqs);
    const int with_next = SharedWithPrevious(seq + 1, block_seqs);
    return with_next > before ? Sharing{with_next, with_next - before} : Sharing{before, 0};
  }
  __device__ Sharing SharingOf(int seq) const {
    return block_seqs_ > 0 ? SharingOf(seq, block_seqs_) : Sharing{0, 0};
  }
  __device__ bool IsSplit(int seq, int q_len) const {
    return q_len == 1 && (w_.split || SharingOf(seq).all > 0);
  }
  __device__ int FirstOwnSplit(int seq, const KeyRange& keys) const {
    const int shared = SharingOf(seq).all, first = SplitOf(keys.begin);
    return shared > first ? shared : first;
  }
  // Divides a single sequence without barriers: chooses the shortest runs with at most one per
  // block.
  __device__ void DivideOne() {
    const int q_len = w_.cu_q[1] - w_.cu_q[0];
    if (!IsSplit(0, q_len)) {
      one_count_ = Blocks(q_len);
      return;
    }
    const KeyRange keys = w_.LastKeys(0);
    const int first = SplitOf(keys.begin), blocks = static_cast<int>(gridDim.y);
    one_count_ = runs_.Count(first, keys);
    if (one_count_ <= blocks) return;
    runs_.tokens = SplitRuns::kPairs;
    one_count_ = runs_.Count(first, keys);
    if (one_count_ <= blocks) return;
    runs_.tokens = (keys.end - SplitBegin(first) - 1) / blocks / kMaxSplit * kMaxSplit;
    do {
      runs_.tokens += kMaxSplit;
      one_count_ = runs_.Count(first, keys);
    } while (one_count_ > blocks);
  }
  // Chooses the runs of a block so that the blocks end as early as possible, estimated from the
  // lengths. Compares up to 16 choices with kLanes threads each.
  static constexpr int kLanes = 8;
  __device__ void Divide() {
    constexpr int kTokensOfItem = 256;  // fixed cost of an item, in tokens
    const int tid = static_cast<int>(threadIdx.x);
    const SplitRuns runs{RunTokens(tid / kLanes)};
    int count = 0, longest = 1, shared = 0;
    for (int seq = tid % kLanes; seq < w_.num_seqs; seq += kLanes) {
      if (w_.cu_q[seq + 1] - w_.cu_q[seq] != 1) continue;
      if (w_.shared_lens != nullptr && seq > 0) shared |= SplitOf(w_.shared_lens[seq]);
      const int len = w_.kv_lens[seq];
      const KeyRange keys = w_.LastKeys(seq);
      count += runs.Count(SplitOf(keys.begin), keys);
      longest = len > longest ? len : longest;
    }
#pragma unroll
    for (int lane = 1; lane < kLanes; lane *= 2) {
      count += __shfl_xor_sync(kFullWarp, count, lane);
      shared |= __shfl_xor_sync(kFullWarp, shared, lane);
      const int other = __shfl_xor_sync(kFullWarp, longest, lane);
      longest = other > longest ? other : longest;
    }
    if (shared != 0) ChooseBlockSeqs();
    if (block_seqs_ > 0) return;
    const int blocks = static_cast<int>(gridDim.y);
    const int turns = (count + blocks - 1) / blocks;
    runs_.tokens = RunTokens(Cheapest(static_cast<float>(turns) *
                                      static_cast<float>(runs.Longest(longest) + kTokensOfItem)));
  }
  // Shared splits are computed one by one, each for as few sequences at a time as two limits allow.
  // Each block has at most one shared item, and three quarters of the savings remain. If such an
  // item ends last, few rows then remain to be merged.
  __device__ void ChooseBlockSeqs() {
    constexpr int kFractions = 3;  // all, 1/2 and 1/4 of w_.block_seqs
    const int tid = static_cast<int>(threadIdx.x), mine = tid / kLanes;
    const int block_seqs = BlockSeqs(mine);
    int items = 0, saved = 0, most_saved = 0;
    for (int seq = tid % kLanes; seq < w_.num_seqs; seq += kLanes) {
      const Sharing most = SharingOf(seq, w_.block_seqs), sharing = SharingOf(seq, block_seqs);
      items += sharing.begun + most.all - sharing.all;
      saved += sharing.all - sharing.begun;
      most_saved += most.all - most.begun;
    }
#pragma unroll
    for (int lane = 1; lane < kLanes; lane *= 2) {
      items += __shfl_xor_sync(kFullWarp, items, lane);
      saved += __shfl_xor_sync(kFullWarp, saved, lane);
      most_saved += __shfl_xor_sync(kFullWarp, most_saved, lane);
    }
    if (most_saved == 0) return;
    const bool fits = 4 * saved >= 3 * most_saved && items <= static_cast<int>(gridDim.y);
    const bool can = mine == 0 || (mine < kFractions && fits);
    block_seqs_ = BlockSeqs(Cheapest(can ? static_cast<float>(block_seqs) : INFINITY));
    part_ = first_part();
  }
  // Returns the lowest n with the lowest cost; threads [n * kLanes, (n + 1) * kLanes) supply cost
  // n.
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
    constexpr int kFewest = 4;  // sequences for which a shared split pays
    const int seqs = w_.block_seqs >> halvings;
    return w_.block_seqs < kFewest ? w_.block_seqs : seqs < kFewest ? kFewest : seqs;
  }
  // 0, 256, multiples of 512 up to 4096, then about half as much again each time; the last value
  // stands for all tokens.
  __device__ static int RunTokens(int i) {
    if (i <= 1) return i * SplitRuns::kPairs;
    if (i <= 9) return (i - 1) * kMaxSplit;
    return i < 15 ? (i % 2 == 0 ? 6144 : 8192) << (i - 10) / 2 : 1 << 30;
  }

  // Loads the item counts of part_ and the next kAttnThreads - 1 parts.
  __device__ void LoadCounts() {
    __syncthreads();
    const int tid = static_cast<int>(threadIdx.x), part = part_ + tid;
    if (tid < kAttnThreads && part < w_.num_seqs) counts_[tid] = Units(part);
    __syncthreads();
  }
  __device__ int first_part() const {
    return block_seqs_ > 0 ? -w_.num_seqs : 0;
  }
  __device__ int CountOf(int part) const {
    return counts_[(part - first_part()) % kAttnThreads];
  }
  // Returns the number of blocks of positions of a sequence that is not split.
  __device__ int Blocks(int q_len) const {
    if (w_.block_positions == 1) return q_len;
    return (q_len + w_.block_positions - 1) / w_.block_positions;
  }
  __device__ int Units(int part) const {
    if (part < 0) return SharingOf(part + w_.num_seqs).begun;
    const int q_len = w_.cu_q[part + 1] - w_.cu_q[part];
    if (!IsSplit(part, q_len)) return Blocks(q_len);
    const KeyRange keys = w_.LastKeys(part);
    return runs_.Count(FirstOwnSplit(part, keys), keys);
  }

  const AttnWork& w_;
  int* counts_;  // [kAttnThreads], shared
  SplitRuns runs_;
  int one_count_ = 0;   // items if there is only one sequence
  int block_seqs_ = 0;  // sequences of a shared split's block; 0: none shared
  // Part s - num_seqs: the splits that sequence s shares with the next one. Part s: its own splits.
  int part_ = 0;
  int first_item_ = 0;  // index of the first item of part_
};

}  // namespace kuiper::KU_GPU
