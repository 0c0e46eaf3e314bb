// The work items of attention: which keys a query row attends to, which query rows are computed
// together, how items are numbered, and the scratch memory of a thread. Plain code, the same for
// every instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/common/attention_mask.h"
#include "kuiper/kernels/cpu/attention_int8.h"
#include "kuiper/kernels/cpu/attention_pairs.h"
#include "kuiper/kernels/cpu/linear/kernel.h"
#include "kuiper/kernels/cpu/work_shares.h"
#include "kuiper/ops/op_args.h"
#include "kuiper/ops/ops_options.h"

namespace kuiper::cpu {

constexpr int kTile = 64;                 // key positions per tile
constexpr int kMicroRows = 6;             // query rows of a register tile
constexpr int kFewRows = 2 * kMicroRows;  // up to these query rows, values are read in place
constexpr int kMaxPrefetchedRows = 32;    // such an item prefetches at most this many KV rows
constexpr int kMaxKvHeads = 4;            // and has at most this many kv heads
constexpr int kManyRows = 24;             // above, keys are packed for outer products
constexpr int kFlashRows = 192;           // maximum query rows of a work item
constexpr int kMinFlashRows = 48;         // minimum of it, reached by halving to get more items
constexpr int kMhaRows = kMicroRows;
static_assert(kFewRows * kMaxKvHeads <= kFlashRows);

inline int MaxRows(AttentionKind kind) {
  return kind == AttentionKind::kMha ? kMhaRows : kFlashRows;
}
inline int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Returns the part of `keys` in the tile at position `tile`, counted from the start of the tile;
// empty (begin == end) if no key is in it.
inline KeyRange InTile(KeyRange keys, int tile) {
  return {std::clamp(keys.begin - tile, 0, kTile), std::clamp(keys.end - tile, 0, kTile)};
}

// Query rows that are computed together. Query row r is head `head + r % num_heads` of batch row
// `q_row + r / num_heads`, which is position `pos + r / num_heads` of its sequence.
// If num_seqs > 1, that batch row is instead the only position of sequence `seq + r / num_heads`.
// The item is then a run of sequences, each of which begins with the same pages as the previous
// one. If num_kv_heads > 1, the item has the query rows of several kv heads. Each tile is computed
// for all of them before the next tile, so that memory is read in larger blocks.
struct AttentionItem {
  int seq = 0;
  int num_seqs = 1;
  int kv_head = 0;
  int num_kv_heads = 1;
  int head = 0;
  int num_heads = 0;
  int q_row = 0;
  int num_positions = 0;
  int pos = 0;
  int kv_len = 0;
  bool causal = true;
  int window = 0;

  int num_rows() const { return num_heads * num_positions; }  // query rows per kv head
  int row_pos(int r) const { return pos + r / num_heads; }
  int row_head(int r) const { return head + r % num_heads; }
  // The keys that query row r attends to; both ends ascend with r.
  KeyRange row_keys(int r) const { return SeenKeys(causal, window, row_pos(r), kv_len); }
  // The keys that any query row attends to.
  KeyRange keys() const { return {row_keys(0).begin, row_keys(num_rows() - 1).end}; }

  // Returns the item with the query rows of kv head `kv_head + i` only.
  AttentionItem ForKvHead(int i) const {
    AttentionItem one = *this;
    one.kv_head += i;
    one.num_kv_heads = 1;
    one.head += i * num_heads;
    return one;
  }
  // Returns the item with sequences [first, end) of this run only.
  AttentionItem ForSeqRange(int first, int end, const int32_t* kv_lens) const {
    AttentionItem part = *this;
    part.seq += first;
    part.q_row += first;
    part.num_seqs = part.num_positions = end - first;
    part.kv_len = kv_lens[part.seq];
    part.pos = part.kv_len - 1;
    return part;
  }
  // Returns the item with all query rows of this run, restricted to its first `len` tokens.
  AttentionItem ForSharedTokens(int len) const {
    AttentionItem shared = *this;
    shared.kv_len = len;
    shared.causal = false;
    return shared;
  }
};

// Returns the number of tokens in whole tiles within the first `len` tokens.
inline int WholeTiles(int len) {
  return len / kTile * kTile;
}

// Numbers the work items. They are ordered by sequence (or run), then by kv head, so that the keys
// of a head stay in the CPU cache. Within a head the latest positions, with the most keys, are
// first. Items of more query rows read the keys less often, but each thread should get several
// items because they differ in length. Calling Find with ascending indices walks the sequences
// once.
class ItemList {
 public:
  // `shared_lens` is AttnMeta::shared_lens; null means that there are no runs. A run is short
  // enough to leave work for all `threads`. An item of few query rows has up to `max_item_kv_heads`
  // kv heads, but reads at most half of a thread's share of all keys. If the kv heads of a sequence
  // divide evenly among the threads, it may read the whole share.
  ItemList(const AttnMeta& meta, const AttnOptions& options, const int32_t* shared_lens,
           int num_heads, int kv_heads, AttentionKind kind, int threads, int max_item_kv_heads)
      : cu_q_(meta.cu_seqlens_q.ptr<int32_t>()),
        kv_lens_(meta.kv_lens.ptr<int32_t>()),
        shared_lens_(shared_lens),
        causal_(options.causal),
        window_(options.window),
        num_seqs_(meta.num_seqs),
        kv_heads_(kv_heads),
        group_(num_heads / kv_heads),
        threads_(threads) {
    constexpr int kItemsPerThread = 4;
    int rows = MaxRows(kind);
    SetRows(rows);
    while (rows / 2 >= kMinFlashRows && CountItems() < kItemsPerThread * threads_) {
      SetRows(rows /= 2);
    }
    const int64_t items = int64_t{1} * num_seqs_ * kv_heads_ * head_chunks_;
    max_run_ = static_cast<int>(std::min<int64_t>(positions_, (items + threads_ - 1) / threads_));
    if (head_chunks_ > 1 || max_item_kv_heads == 1) return;
    max_item_kv_heads_ = max_item_kv_heads;
    int64_t keys = 0;
    for (int seq = 0; seq < num_seqs_; ++seq) keys += kv_lens_[seq];
    share_ = keys * kv_heads_ / threads_;
  }

  int64_t CountItems() const {
    int64_t items = 0;
    for (int seq = 0; seq < num_seqs_; seq = EndOfRun(seq)) items += CountOf(seq);
    return items;
  }

  bool Find(int64_t index, AttentionItem* item) {
    if (index < first_) seq_ = first_ = 0;
    for (; seq_ < num_seqs_ && index >= first_ + CountOf(seq_); seq_ = EndOfRun(seq_)) {
      first_ += CountOf(seq_);
    }
    if (seq_ == num_seqs_) return false;
    const int64_t in_seq = index - first_;
    const int q_len = cu_q_[seq_ + 1] - cu_q_[seq_];
    const int blocks = (q_len + positions_ - 1) / positions_;
    const int begin = static_cast<int>(blocks - 1 - in_seq % blocks) * positions_;
    const int chunk = static_cast<int>(in_seq / blocks % head_chunks_);
    item->num_kv_heads = ItemKvHeads(seq_);
    const int kv_head = static_cast<int>(in_seq / blocks / head_chunks_) * item->num_kv_heads;
    item->seq = seq_;
    item->num_seqs = EndOfRun(seq_) - seq_;
    item->kv_head = kv_head;
    item->head = kv_head * group_ + chunk * heads_;
    item->num_heads = std::min(heads_, group_ - chunk * heads_);
    item->q_row = cu_q_[seq_] + begin;
    item->num_positions = item->num_seqs > 1 ? item->num_seqs : std::min(positions_, q_len - begin);
    item->pos = kv_lens_[seq_] - q_len + begin;
    item->kv_len = kv_lens_[seq_];
    item->causal = causal_;
    item->window = window_;
    return true;
  }

 private:
  void SetRows(int max_rows) {
    heads_ = std::min(group_, max_rows);
    head_chunks_ = (group_ + heads_ - 1) / heads_;
    positions_ = std::max(1, max_rows / group_);
  }
  int64_t CountOf(int seq) const {
    const int64_t q_len = cu_q_[seq + 1] - cu_q_[seq];
    return (q_len + positions_ - 1) / positions_ * (kv_heads_ / ItemKvHeads(seq)) * head_chunks_;
  }
  // Returns the kv heads per item for the sequence or run that begins with `seq`.
  int ItemKvHeads(int seq) const {
    const bool is_run = EndOfRun(seq) > seq + 1;
    if (is_run || (cu_q_[seq + 1] - cu_q_[seq]) * group_ > kFewRows) return 1;
    int heads = 1;
    for (int more = 2; more <= max_item_kv_heads_ && kv_heads_ % more == 0; more *= 2) {
      const bool is_even = kv_heads_ % (more * threads_) == 0;
      if (int64_t{more} * kv_lens_[seq] > (is_even ? share_ : share_ / 2)) break;
      heads = more;
    }
    return heads;
  }
  // Returns the end of the run that begins with sequence `seq`.
  int EndOfRun(int seq) const {
    int end = seq + 1;
    while (shared_lens_ != nullptr && end < num_seqs_ && end - seq < max_run_ &&
           shared_lens_[end] >= kTile) {
      ++end;
    }
    return end;
  }

  const int32_t* cu_q_;
  const int32_t* kv_lens_;
  const int32_t* shared_lens_;
  bool causal_;
  int window_;
  int num_seqs_, kv_heads_, group_, threads_;
  // Query heads of an item, items per group of query heads, and positions of an item.
  int heads_ = 0, head_chunks_ = 0, positions_ = 0;
  int max_item_kv_heads_ = 1;  // applies to items of few query rows
  int64_t share_ = 0;          // keys per thread, counted once for each kv head
  int max_run_ = 0;            // maximum sequences of a run
  int seq_ = 0;                // first sequence of the run that Find is at
  int64_t first_ = 0;          // index of that run's first item
};

// Calls f(item, after) for the items that this thread claims. `after` is the thread's next item, so
// that f can prefetch what that item needs. If the item is short, `after` is claimed before f runs.
// `after` is null with the last item and with a long item: the first idle thread claims the next.
template <typename F>
void ForEachItem(WorkShares& shares, int thread, ItemList& items, const F& f) {
  constexpr int kShort = 512;  // keys
  const auto find = [&](AttentionItem* item) {
    return items.Find(shares.Take(thread).begin, item);
  };
  AttentionItem item, after;
  for (bool found = find(&item); found; item = after) {
    const bool is_short = item.kv_len <= kShort;
    if (is_short) found = find(&after);
    f(item, is_short && found ? &after : nullptr);
    if (!is_short) found = find(&after);
  }
}

// What all items of a call share.
struct AttentionCall {
  AttentionKind kind;
  int head_dim;
  const LinearKernel& dots;  // computes the scores, with keys as weights
  const PairKernel& pairs;
  const Int8Kernel& int8;
  const float* alibi_slopes;   // [H], or null
  const int32_t* kv_lens;      // [S]
  const int32_t* shared_lens;  // [S], or null if no item has several sequences
};

// Scratch memory of one thread, in floats; `dim` is head_dim rounded up to 32.
struct AttentionScratch {
  float* q;          // [rows, dim] scaled queries: converted by LinearKernel::convert, or int16
  float* q_factors;  // [rows] scales of int16 queries; else 1
  float* acc;        // [rows, dim] outputs before the division by the softmax denominator
  float* q_tiles;    // [rows, dim] queries as OuterArgs::rows, by groups of query rows
  float* keys;       // [kTile, dim / 2] copied keys: BF16, or padded INT8
  float* panels;     // [kTile, dim] and gaps between lanes: OuterArgs::panel, or pairs of INT8 keys
  float* values;     // [kTile, dim] converted values; or pairs [kTile / 2, dim], then copied values
                     // [kTile, dim / 2] of BF16 or padded INT8
  float* sum;        // [rows, 16] running lanes of the softmax denominator
  float* max;        // [rows] running maximum of the scores
  float* scores;     // [kMicroRows, score_stride] scores of a group of query rows
  int64_t dim;
  int64_t score_stride;

  // Splits `base` into the arrays and returns the number of floats; only counts if `base` is null.
  size_t Carve(float* base, AttentionKind kind, int head_dim, int max_context) {
    const int64_t rows = MaxRows(kind);
    dim = RoundUp(head_dim, kPairColumns);
    score_stride = kind == AttentionKind::kMha ? RoundUp(max_context, kTile) : kTile;
    int64_t used = 0;
    const auto take = [base, &used](int64_t n) {
      float* p = base == nullptr ? nullptr : base + used;
      used += RoundUp(n, 16);
      return p;
    };
    q = take(rows * dim);
    q_factors = take(rows);
    q_tiles = take(rows * dim);
    acc = take(rows * dim);
    panels = take(kTile * dim + kTile / 2 * kSumLanes * kSumLanes);
    keys = take(kTile * dim / 2);
    values = take(kTile * dim);
    sum = take(rows * 16);
    max = take(rows);
    scores = take(kMicroRows * score_stride);
    return used;
  }
  uint32_t* pairs() const { return reinterpret_cast<uint32_t*>(values); }
  float* copied_values() const { return values + kTile / 2 * dim; }
  // Returns the scratch memory of the query rows from `first` on.
  AttentionScratch From(int first) const {
    AttentionScratch rows = *this;
    rows.q += first * dim;
    rows.q_factors += first;
    rows.acc += first * dim;
    rows.sum += first * 16;
    rows.max += first;
    return rows;
  }
};

}  // namespace kuiper::cpu
