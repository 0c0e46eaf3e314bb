// Reuse of computed keys and values, as the scheduler sees it. Paged storage shares whole pages
// through the prefix tree. Contiguous storage takes over a whole cache row whose tokens begin like
// the prompt. A token is identified by a 64-bit key: its id, or a hash if the id is not enough.
// Host only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/prefix_event.h"

namespace kuiper {

class KvReuse {
 public:
  // How many of a sequence's pages were inserted; default: none. Only the KvReuse writes it.
  struct Cursor {
    int num_pages = 0;
    int32_t page = 0;     // the last of them
    uint64_t serial = 0;  // unique number of the tree node; detects that the node was evicted
  };
  struct Match {
    std::vector<int32_t> pages;
    int num_tokens = 0;
    Cursor cursor;  // the last page of the match
  };
  struct Stats {
    int64_t lookups = 0, hits = 0, tokens_requested = 0, tokens_hit = 0, evicted_pages = 0;
  };

  KvReuse() = default;
  virtual ~KvReuse() = default;
  KvReuse(const KvReuse&) = delete;
  KvReuse& operator=(const KvReuse&) = delete;
  // Returns pages whose first num_tokens tokens (at most max_tokens) match the beginning of `keys`.
  // The caller owns one reference on each page.
  virtual Match Acquire(std::span<const uint64_t> keys, int max_tokens) = 0;
  // Takes back an unused match of `keys`, with its references.
  virtual void Return(std::span<const uint64_t> keys, const Match& match) = 0;
  // Inserts the computed tokens after the cursor; called when a step has completed a page. A page
  // may be exchanged for an equal one, together with the caller's reference. The cursor belongs to
  // the sequence: it starts as that of its match, or the default, and each call advances it. If its
  // node was evicted, returns false and does nothing; then call again from the default cursor.
  // `holder` is the sequence, for observers of the pool.
  [[nodiscard]] virtual bool Computed(std::span<const uint64_t> keys, std::span<int32_t> pages,
                                      Cursor* cursor, const PageHolder& holder) = 0;
  // Like Computed, for a sequence about to release its pages; called before it does.
  [[nodiscard]] virtual bool Finished(std::span<const uint64_t> keys, std::span<int32_t> pages,
                                      Cursor* cursor, const PageHolder& holder) {
    return Computed(keys, pages, cursor, holder);
  }
  // Frees up to num_pages pages that have no other user, least recently used first. Returns how
  // many.
  virtual int Evict(int num_pages) = 0;
  // Pages that Evict could free.
  virtual int num_evictable() const = 0;
  // Forgets every page; pages that sequences hold stay valid.
  virtual void Clear() = 0;
  const Stats& stats() const { return stats_; }

 protected:
  Stats stats_;
};

// Shares full pages through a PrefixCache of at most max_tokens tokens.
std::unique_ptr<KvReuse> MakePageReuse(BlockPool& pool, int64_t max_tokens,
                                       PrefixObserver observer = {});
// Keeps the rows of finished sequences. A prompt takes over the row with the longest common prefix.
std::unique_ptr<KvReuse> MakeRowReuse(BlockPool& pool);

}  // namespace kuiper
