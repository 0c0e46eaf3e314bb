// What attention fetches of the KV cache in advance, and how many heads decode steps read together.
// Included once per instruction set (hwy/foreach_target.h).
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_items.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/host_memory.h"
#include "kuiper/kernels/cpu/linear_kernel.h"
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

// Calls f(pos, n) for the n tokens from `pos` on of each page with tokens of [begin, end).
template <class F>
HWY_INLINE void ForEachPage(int page_size, int begin, int end, const F& f) {
  for (int pos = begin, next; pos < end; pos = next) {
    next = std::min(end, pos - pos % page_size + page_size);
    f(pos, next - pos);
  }
}

// Whether a tile of few rows fetches the next one, keys and values of all heads of the item in the
// order of their addresses: memory reads blocks of 8 KB and more faster than twice as many of 4 KB.
// Pages of one or two tokens became slower.
HWY_INLINE bool FetchesInOrder(int page_size) {
  constexpr int kMinTokens = 4;  // of a page
  return page_size >= kMinTokens;
}

// The most kv heads of an item of few rows: as many as have at most 32 KB of keys and values side
// by side in a page, and of whose tiles two, the one in use and the one that is fetched, take no
// more than a fourth of L2. With half of it attention took 1.06 to 1.29 times as long (Zen 3, the
// other thread of each core busy).
inline int MaxItemKvHeads(const KvView& kv) {
  constexpr size_t kBlock = 32 << 10;
  int page_size = 0;
  VisitKv(kv, [&](const auto& view) { page_size = view.page_size(); });
  if (!FetchesInOrder(page_size) || !kv.HasRuns()) return 1;
  const size_t in_page = 2 * kv.run_bytes();  // of one kv head
  const size_t in_tile = 2 * kTile * kv.format.row_bytes(kv.head_dim());
  int heads = 1;
  while (2 * heads <= kMaxKvHeads && 2 * heads * in_page <= kBlock &&
         2 * heads * 2 * in_tile <= L2CacheBytes() / 4) {
    heads *= 2;
  }
  return heads;
}

// What is fetched of the next tile while one is multiplied.
template <class Row>
class TileFetcher {
 public:
  // What is read behind the tile at position `tile` of the item: the next tile or, behind the last
  // one, the first tile of `after`, unless that is null.
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
  RangeFetcher& lines() { return lines_; }
  // The next part / of_all of the lines.
  void FetchPart(int part, int of_all) { lines_.Fetch((num_lines_ * part + of_all - 1) / of_all); }

 private:
  // The keys and values at positions [begin, end) of the item's heads.
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
  // The lines of these bytes, of which a range that ends there has the first one already.
  void Add(const void* data, int64_t bytes) {
    const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % 64);
    const uint8_t* begin = static_cast<const uint8_t*>(data) - before;
    const int64_t lines = (before + bytes + 63) / 64;
    if (count_ > 0) {
      RangeFetcher::Range& last = ranges_[count_ - 1];
      if (last.begin <= begin && begin <= last.begin + last.lines * 64) {
        last.lines = std::max(last.lines, (begin - last.begin) / 64 + lines);
        return;
      }
    }
    ranges_[count_++] = {begin, lines};
  }

  static constexpr int kMaxRanges = kMaxKvHeads * 2 * kTile * (Row::kHasScale ? 2 : 1);
  RangeFetcher::Range ranges_[kMaxRanges];
  int count_ = 0;
  int64_t num_lines_ = 0;  // of all ranges
  RangeFetcher lines_;
};

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
