#include "kuiper/report/cache_text.h"

#include <algorithm>

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

std::string BlockTableText(const KvStats& kv, const BlockTable& table,
                           const std::optional<PageMap>& map) {
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
  for (int i = 0; i < static_cast<int>(table.pages.size()); ++i) {
    const int end = std::min((i + 1) * kv.page_size, table.tokens);
    text +=
        Format("\n  [%d] tokens %d..%d -> block %d", i, i * kv.page_size, end - 1, table.pages[i]);
    text += map->is_cached(table.pages[i])          ? ", kept by the prefix cache"
            : map->num_holders(table.pages[i]) == 0 ? ", free again"
                                                    : "";
  }
  if (!kv.prefix_cache)
    text += "\ngiven back at the end of the turn (" + Param("prefix_cache") + " keeps them)";
  return text + pool;
}

}  // namespace kuiper
