// Reuse of keys and values that are already computed, as the scheduler sees it. Paged storage
// shares whole pages through the prefix tree; contiguous storage takes over a whole cache row whose
// tokens begin like the prompt. A token is told by a 64-bit key: its id, or more where that does
// not say all. Host only.
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
  // How far a sequence's pages were offered; the default is the start. Written by the reuse alone.
  struct Cursor {
    int num_pages = 0;
    int32_t page = 0;     // the last one
    uint64_t serial = 0;  // of its place; no other ever has it
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
  // Pages whose first num_tokens tokens (at most max_tokens) have the keys with which `keys`
  // begins; the caller owns one reference on each page.
  virtual Match Acquire(std::span<const uint64_t> keys, int max_tokens) = 0;
  // Takes back a match of `keys` that was of no use, with its references.
  virtual void Return(std::span<const uint64_t> keys, const Match& match) = 0;
  // Keys and pages of the computed tokens behind the cursor; called when a step has completed a
  // page. A page may be exchanged for an equal one, the caller's reference with it. The cursor is
  // the sequence's own: from its match, else the default, and moved on by each call. False, and
  // nothing done: it stands for what is no longer there. Then all is offered with the default one.
  // `holder` is the sequence, for who watches the pool.
  [[nodiscard]] virtual bool Computed(std::span<const uint64_t> keys, std::span<int32_t> pages,
                                      Cursor* cursor, const PageHolder& holder) = 0;
  // The same when the sequence gives its pages away; called before it releases them.
  [[nodiscard]] virtual bool Finished(std::span<const uint64_t> keys, std::span<int32_t> pages,
                                      Cursor* cursor, const PageHolder& holder) {
    return Computed(keys, pages, cursor, holder);
  }
  // Gives up to num_pages pages that nobody else uses back to the pool, least recently used first;
  // returns how many.
  virtual int Evict(int num_pages) = 0;
  // Pages that Evict could free.
  virtual int num_evictable() const = 0;
  // Forgets every page; those that sequences hold stay theirs.
  virtual void Clear() = 0;
  const Stats& stats() const { return stats_; }

 protected:
  Stats stats_;
};

// Shares full pages through a PrefixCache of at most max_tokens tokens.
std::unique_ptr<KvReuse> MakePageReuse(BlockPool& pool, int64_t max_tokens,
                                       PrefixObserver observer = {});
// Keeps the rows of finished sequences; a prompt takes over the row with the longest common prefix.
std::unique_ptr<KvReuse> MakeRowReuse(BlockPool& pool);

}  // namespace kuiper
