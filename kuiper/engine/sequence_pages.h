// The pages of a scheduler's sequences: growth, copies before shared pages are written, prefix
// cache, host memory, and reservations. Also holds the embedding sources that a sequence still
// needs, as long as it has pages. Independent of order and plans.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kuiper/engine/encoder_cache.h"
#include "kuiper/engine/policy.h"
#include "kuiper/engine/sequence.h"
#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/reuse.h"
#include "kuiper/kv/swap_space.h"

namespace kuiper {

class SequencePages {
 public:
  // `reuse` and `host_pages` may be null. `sources` may be null if no sequence has patches.
  SequencePages(BlockPool& pool, KvReuse* reuse, BlockPool* host_pages, EncoderCache* sources,
                OnFull on_full)
      : pool_(pool), reuse_(reuse), host_pages_(host_pages), sources_(sources), on_full_(on_full) {}

  int PagesFor(int num_tokens) const {
    return (num_tokens + pool_.page_size() - 1) / pool_.page_size();
  }
  int num_total() const { return pool_.num_pages(); }
  int64_t num_tokens() const { return int64_t{pool_.num_pages()} * pool_.page_size(); }
  // Pages that are free or can be evicted.
  int num_available() const;
  // Number of pages reserved for a sequence before others are admitted.
  int NumReserved(const Sequence& seq) const;
  // Number of reserved pages that the running sequences do not have yet.
  int NumReservedFor(std::span<Sequence* const> running) const;
  // True if the page for the next token of seq has another holder.
  bool IsWritePageShared(const Sequence& seq) const;

  // Makes seq.pages cover num_tokens tokens. The pages of tokens not yet computed become its own.
  // Evicts reusable pages if too few are free. Returns false and changes nothing if that is not
  // enough.
  bool GrowTo(Sequence& seq, int num_tokens, std::vector<StepPlan::PageCopy>* copies);
  // Shares pages of `parent` with `child`, which has none. They cover the computed tokens of
  // `parent` that equal the child's, except the child's last token. Returns the number of tokens.
  int Share(const Sequence& parent, Sequence* child);

  // Returns the leading tokens of seq that the prefix cache has, at most max_tokens; call Take or
  // Return afterwards.
  KvReuse::Match Acquire(const Sequence& seq, int max_tokens);
  void Take(KvReuse::Match match, Sequence* seq);
  void Return(const Sequence& seq, const KvReuse::Match& match);
  // Records tokens [before, num_tokens) as computed and inserts completed pages into the prefix
  // cache. Returns true if it released seq's embedding sources.
  bool Computed(Sequence& seq, int before, int num_tokens);
  // Inserts the computed pages into the prefix cache before seq releases them. Does nothing if a
  // step that counts as computed was not launched.
  void InsertPages(Sequence& seq);
  // Holds the sources of seq's patches after its first num_computed tokens. Returns false if they
  // do not fit next to the sources that others hold.
  bool HoldSources(Sequence& seq, int num_computed);
  void ReleaseSources(Sequence& seq);

  // Releases the pages and sources; returns the pages.
  std::vector<int32_t> Release(Sequence& seq);

  bool HasRoomOnHost(const Sequence& seq) const;
  // Return the number of moved pages.
  int SwapOut(Sequence& seq);
  int SwapIn(Sequence& seq, std::vector<StepPlan::PageCopy>* copies);
  void ReleaseHostPages(Sequence& seq);
  // Returns the page moves decided since the last call, in order.
  std::vector<PageMove> TakeMoves() { return std::exchange(moves_, {}); }

 private:
  std::span<const uint64_t> KeysOf(const Sequence& seq, int begin, int end);
  void InsertTokens(Sequence& seq, int num_tokens, bool finished);
  // `page` is 0 if the event has no page of the pool.
  void NotifySwapped(KvEvent::Kind kind, const Sequence& seq, int index, int32_t page) const;

  BlockPool& pool_;
  KvReuse* reuse_;
  BlockPool* host_pages_;
  EncoderCache* sources_;
  OnFull on_full_;
  std::vector<PageMove> moves_;
  std::vector<uint64_t> keys_;  // result of the last KeysOf
};

}  // namespace kuiper
