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
#include "kuiper/kv/prefix_cache.h"

namespace kuiper {

class KvReuse {
 public:
  virtual ~KvReuse() = default;
  // Pages whose first num_tokens tokens (at most max_tokens) have the keys with which `keys`
  // begins; the caller owns one reference on each page.
  virtual PrefixCache::Match Acquire(std::span<const uint64_t> keys, int max_tokens) = 0;
  // Takes back a match of `keys` that was of no use, with its references.
  virtual void Return(std::span<const uint64_t> keys, const PrefixCache::Match& match) = 0;
  // Keys and pages of the computed tokens behind the cursor; called when a step has completed a
  // page. A page may be exchanged for an equal one, the caller's reference with it. The cursor is
  // the sequence's own: from its match, else the default, and moved on by each call. False, and
  // nothing done: it stands for what is no longer there. Then all is offered with the default one.
  [[nodiscard]] virtual bool Computed(std::span<const uint64_t> keys, std::span<int32_t> pages,
                                      PrefixCache::Cursor* cursor) = 0;
  // The same when the sequence gives its pages away; called before it releases them.
  [[nodiscard]] virtual bool Finished(std::span<const uint64_t> keys, std::span<int32_t> pages,
                                      PrefixCache::Cursor* cursor) = 0;
  // Gives up to num_pages pages nobody uses back to the pool.
  virtual int Evict(int num_pages) = 0;
  virtual int num_evictable() const = 0;
  virtual void Clear() = 0;
  virtual PrefixCache::Stats stats() const = 0;
};

// Shares full pages through a PrefixCache of at most max_tokens tokens.
std::unique_ptr<KvReuse> MakePageReuse(BlockPool& pool, int64_t max_tokens);
// Keeps the rows of finished sequences; a prompt takes over the row with the longest common prefix.
std::unique_ptr<KvReuse> MakeRowReuse(BlockPool& pool);

}  // namespace kuiper
