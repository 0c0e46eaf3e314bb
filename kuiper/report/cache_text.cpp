#include "kuiper/report/cache_text.h"

#include <algorithm>
#include <string_view>

#include "kuiper/report/number_text.h"

namespace kuiper {

std::string CacheText(const KvStats& kv) {
  std::string text =
      kv.paged
          ? Format("blocks: %d of %d used, %d free, %d shared, %d evictable, %d at most so far",
                   kv.pages_used, kv.pages_total, kv.pages_free, kv.pages_shared,
                   kv.pages_evictable, kv.pages_peak)
          : Format("contiguous cache: %d of %d rows used", kv.pages_used, kv.pages_total);
  text += "\nmemory: " + HumanBytes(kv.bytes_reserved) + " allocated, " +
          HumanBytes(kv.bytes_touched) + " touched";
  if (kv.preempted_recompute + kv.preempted_swap + kv.slides > 0) {
    text += Format("\nfull cache: %ld preemptions recomputed, %ld swapped, %ld slides",
                   kv.preempted_recompute, kv.preempted_swap, kv.slides);
  }
  if (!kv.prefix_cache) return text + "\nprefix cache: off (" + Param("prefix_cache") + ")";
  return text + Format(
                    "\nprefix cache: %ld of %ld lookups hit, %ld of %ld tokens reused, %ld blocks "
                    "evicted",
                    kv.hits, kv.lookups, kv.tokens_hit, kv.tokens_requested, kv.evicted_pages);
}

namespace {

// Consecutive blocks in the same state become one line.
std::vector<std::string> RunLines(const KvStats& kv, const BlockTable& table, const PageMap& map) {
  const auto end_of = [&](int32_t page) {
    return map.is_cached(page)          ? ", kept by the prefix cache"
           : map.num_holders(page) == 0 ? ", free again"
                                        : "";
  };
  const std::vector<int32_t>& pages = table.pages;
  std::vector<std::string> lines;
  for (size_t begin = 0, end = 0; begin < pages.size(); begin = end) {
    const std::string_view what = end_of(pages[begin]);
    const bool falls = begin + 1 < pages.size() && pages[begin + 1] < pages[begin];
    const int32_t step = falls ? -1 : 1;
    while (++end < pages.size() && pages[end] == pages[end - 1] + step &&
           end_of(pages[end]) == what) {
    }
    const int first = static_cast<int>(begin) * kv.page_size;
    const int last = std::min(static_cast<int>(end) * kv.page_size, table.tokens) - 1;
    const bool is_one = end == begin + 1;
    lines.push_back(
        (is_one ? Format("[%zu] tokens %d..%d -> block %d", begin, first, last, pages[begin])
                : Format("[%zu..%zu] tokens %d..%d -> blocks %d..%d", begin, end - 1, first, last,
                         pages[begin], pages[end - 1]))
            .append(what));
  }
  return lines;
}

}  // namespace

std::string BlockTableText(const KvStats& kv, const BlockTable& table,
                           const std::optional<PageMap>& map, size_t most_lines) {
  if (!map.has_value())
    return "the KV cache is one contiguous buffer (" + Param("paged_attention") + " uses blocks)";
  using enum KvEvent::Kind;
  const std::string pool = Format(
      "\npool: %d of %d blocks free; so far %ld allocated, %ld shared,\n"
      "      %ld copied, %ld evicted, %ld swapped out",
      map->num_free(), map->num_pages(), map->num_events(kAllocate), map->num_events(kShare),
      map->num_events(kCopy), map->num_events(kEvict), map->num_events(kSwapOut));
  if (table.turn == 0) return "block table: none, there is no answer yet" + pool;
  std::string text = Format("block table: turn %d, %zu blocks of %d tokens, %d tokens", table.turn,
                            table.pages.size(), kv.page_size, table.tokens);
  const std::vector<std::string> lines = RunLines(kv, table, *map);
  const size_t shown = lines.size() <= most_lines ? lines.size() : most_lines - 1;
  for (size_t i = 0; i < shown; ++i) text += "\n  " + lines[i];
  if (shown < lines.size()) text += Format("\n  and %zu more runs of blocks", lines.size() - shown);
  if (!kv.prefix_cache)
    text += "\ngiven back at the end of the turn (" + Param("prefix_cache") + " keeps them)";
  return text + pool;
}

}  // namespace kuiper
