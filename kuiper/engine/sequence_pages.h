// The pages of a scheduler's sequences: growing, copies before shared pages are written, the prefix
// cache, host memory, and how many pages others may still ask for; and, as long as a sequence has
// pages, the sources of patches that it will compute. It knows no order and no plans.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kuiper/engine/policy.h"
#include "kuiper/engine/sequence.h"
#include "kuiper/engine/source_cache.h"
#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/reuse.h"
#include "kuiper/kv/swap_space.h"

namespace kuiper {

class SequencePages {
 public:
  // `reuse` and `host_pages` may be null; so may `sources` where no sequence has patches.
  SequencePages(BlockPool& pool, KvReuse* reuse, BlockPool* host_pages, SourceCache* sources,
                OnFull on_full)
      : pool_(pool), reuse_(reuse), host_pages_(host_pages), sources_(sources), on_full_(on_full) {}

  int PagesFor(int num_tokens) const {
    return (num_tokens + pool_.page_size() - 1) / pool_.page_size();
  }
  int num_total() const { return pool_.num_pages(); }
  int64_t num_tokens() const { return int64_t{pool_.num_pages()} * pool_.page_size(); }
  // Free, or given back as soon as somebody asks.
  int num_available() const;
  // How many pages are kept for a sequence before others are admitted.
  int Promised(const Sequence& seq) const;
  // How many of them those who run do not have yet.
  int PromisedTo(std::span<Sequence* const> running) const;
  // Whether the page that the next token of seq goes to is also somebody else's.
  bool IsWritePageShared(const Sequence& seq) const;

  // Makes seq.pages cover num_tokens tokens, and the pages of those not yet computed its own;
  // evicts reusable pages if the free ones do not suffice. False, and nothing done: there are too
  // few.
  bool GrowTo(Sequence& seq, int num_tokens, std::vector<StepPlan::PageCopy>* copies);
  // Gives `child`, which has no pages, a share in those of the tokens that `parent` has computed
  // and that are the child's as well, but for its last one; returns how many.
  int Share(const Sequence& parent, Sequence* child);

  // The beginning of seq, at most max_tokens tokens, as the prefix cache has it; then Take or
  // Return.
  KvReuse::Match Acquire(const Sequence& seq, int max_tokens);
  void Take(KvReuse::Match match, Sequence* seq);
  void Return(const Sequence& seq, const KvReuse::Match& match);
  // The first num_tokens tokens of seq are computed, the last ones since `before` were. Whether seq
  // needs its sources no more and gave them up.
  bool Computed(Sequence& seq, int before, int num_tokens);
  // Offers what is computed to the prefix cache before seq gives its pages away; nothing where a
  // step was not launched that counts as computed.
  void Offer(Sequence& seq);
  // Holds the sources of the patches that seq has behind its first num_computed tokens. False: they
  // do not fit beside those that others hold.
  bool HoldSources(Sequence& seq, int num_computed);
  void ReleaseSources(Sequence& seq);

  // Releases the pages, and returns which they were; and the sources.
  std::vector<int32_t> Release(Sequence& seq);

  bool HasRoomOnHost(const Sequence& seq) const;
  // Return how many pages move.
  int SwapOut(Sequence& seq);
  int SwapIn(Sequence& seq, std::vector<StepPlan::PageCopy>* copies);
  void ReleaseHostPages(Sequence& seq);
  // What was decided since the last call, in order.
  std::vector<PageMove> TakeMoves() { return std::exchange(moves_, {}); }

 private:
  std::span<const uint64_t> KeysOf(const Sequence& seq, int begin, int end);
  void OfferTokens(Sequence& seq, int num_tokens, bool finished);
  // `page` is 0 where no page of the pool takes part.
  void TellSwapped(KvEvent::Kind kind, const Sequence& seq, int index, int32_t page) const;

  BlockPool& pool_;
  KvReuse* reuse_;
  BlockPool* host_pages_;
  SourceCache* sources_;
  OnFull on_full_;
  std::vector<PageMove> moves_;
  std::vector<uint64_t> keys_;  // what KeysOf returned last
};

}  // namespace kuiper
