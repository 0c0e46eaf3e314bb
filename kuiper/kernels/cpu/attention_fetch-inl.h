// Prefetching from the KV cache in attention, and how many kv heads a decode item reads together.
// Included once per instruction set (hwy/foreach_target.h).
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_items.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/host_memory.h"
#include "kuiper/kernels/cpu/linear/kernel.h"
#include "kuiper/ops/kv_view.h"

#if defined(KUIPER_KERNELS_CPU_ATTENTION_FETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KUIPER_KERNELS_CPU_ATTENTION_FETCH_INL_H_
#undef KUIPER_KERNELS_CPU_ATTENTION_FETCH_INL_H_
#else
#define KUIPER_KERNELS_CPU_ATTENTION_FETCH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// Calls f(pos, n) for each page with tokens of [begin, end): its tokens [pos, pos + n).
template <class F>
HWY_INLINE void ForEachPage(int page_size, int begin, int end, const F& f) {
  for (int pos = begin, next; pos < end; pos = next) {
    next = std::min(end, pos - pos % page_size + page_size);
    f(pos, next - pos);
  }
}

// True if an item of few query rows prefetches its next tile in address order: keys and values of
// all its kv heads. Reading blocks of 8 KB and more is faster than twice the number of 4 KB blocks.
// Pages of one or two tokens became slower with it.
HWY_INLINE bool PrefetchesInAddressOrder(int page_size) {
  constexpr int kMinTokens = 4;  // per page
  return page_size >= kMinTokens;
}

// Returns the maximum number of kv heads of an item of few query rows. Their keys and values take
// at most 32 KB of contiguous memory in a page. Two tiles of them, the current one and the
// prefetched one, take at most a quarter of L2. With half of L2 attention took 1.06 to 1.29 times
// as long (Zen 3, with the SMT sibling of each core busy).
inline int MaxItemKvHeads(const KvView& kv) {
  constexpr size_t kBlock = 32 << 10;
  int page_size = 0;
  VisitKv(kv, [&](const auto& view) { page_size = view.page_size(); });
  if (!PrefetchesInAddressOrder(page_size) || !kv.HasRuns()) return 1;
  const size_t in_page = 2 * kv.run_bytes();  // bytes of one kv head
  const size_t in_tile = 2 * kTile * kv.format.row_bytes(kv.head_dim());
  int heads = 1;
  while (2 * heads <= kMaxKvHeads && 2 * heads * in_page <= kBlock &&
         2 * heads * 2 * in_tile <= L2CacheBytes() / 4) {
    heads *= 2;
  }
  return heads;
}

// Prefetches the next tile while the current one is multiplied.
template <class Row>
class TilePrefetcher {
 public:
  // Finds the memory that is read after the item's tile at position `tile`. This is the item's next
  // tile or, after the last one, the first tile of `after`, unless that is null.
  template <class View>
  void FindAfter(const View& view, const AttentionItem& item, int tile,
                 const AttentionItem* after) {
    const int end = item.keys().end;
    if (tile + kTile < end || after == nullptr) {
      return Find(view, item, tile + kTile, std::min(end, tile + 2 * kTile));
    }
    const KeyRange first = after->keys();
    Find(view, *after, first.begin, std::min(first.end, WholeTiles(first.begin) + kTile));
  }
  RangePrefetcher& lines() { return lines_; }
  // Prefetches the next part / of_all of the cache lines.
  void FetchPart(int part, int of_all) { lines_.Fetch((num_lines_ * part + of_all - 1) / of_all); }

 private:
  // Finds the keys and values at positions [begin, end) of the item's kv heads.
  template <class View>
  void Find(const View& view, const AttentionItem& item, int begin, int end) {
    const auto row_bytes = static_cast<int64_t>(view.head_dim() * sizeof(typename Row::Unit));
    count_ = 0;
    ForEachPage(view.page_size(), begin, end, [&](int pos, int n) HWY_ATTR {
      for (int head = 0; head < item.num_kv_heads; ++head) {
        const Row key = view.Key(item.seq, pos, item.kv_head + head);
        for (Row row : {key, view.ValueOf(key)}) {
          const Row first = row;
          if (view.Next(row).data == row.data + view.head_dim()) {
            Add(row.data, n * row_bytes);
          } else {
            for (int i = 0; i < n; ++i, row = view.Next(row)) Add(row.data, row_bytes);
          }
          if constexpr (Row::kHasScale) {
            Add(first.scale, n * static_cast<int64_t>(sizeof(*first.scale)));
          }
        }
      }
    });
    num_lines_ = 0;
    for (int i = 0; i < count_; ++i) num_lines_ += ranges_[i].lines;
    lines_ = {ranges_, count_};
  }
  // Adds the cache lines of these bytes; merges them with the last range if they adjoin or overlap.
  void Add(const void* data, int64_t bytes) {
    const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % 64);
    const uint8_t* begin = static_cast<const uint8_t*>(data) - before;
    const int64_t lines = (before + bytes + 63) / 64;
    if (count_ > 0) {
      RangePrefetcher::Range& last = ranges_[count_ - 1];
      if (last.begin <= begin && begin <= last.begin + last.lines * 64) {
        last.lines = std::max(last.lines, (begin - last.begin) / 64 + lines);
        return;
      }
    }
    ranges_[count_++] = {begin, lines};
  }

  static constexpr int kMaxRanges = kMaxKvHeads * 2 * kTile * (Row::kHasScale ? 2 : 1);
  RangePrefetcher::Range ranges_[kMaxRanges];
  int count_ = 0;
  int64_t num_lines_ = 0;  // cache lines in all ranges
  RangePrefetcher lines_;
};

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
