// What the scheduler does when the pool is full: put a sequence back in line, its keys and values
// forgotten or in host memory, or drop the oldest part of it.
#include <algorithm>
#include <utility>

#include "kuiper/engine/scheduler.h"

namespace kuiper {

void Scheduler::Preempt(int64_t id, Preemption how) {
  Sequence* seq = Find(id);
  KU_CHECK(seq != nullptr, "no such sequence");
  PutBack(*seq, how);
}

// Swapping moves every page twice, recomputing computes every token. Pages that the prefix tree
// keeps are not counted as saved: the pool is full, so they are about to be evicted.
bool Scheduler::ShouldSwap(const Sequence& seq, Preemption how) const {
  const int pages = PagesFor(seq.num_computed);
  if (how == Preemption::kRecompute || host_pages_ == nullptr || pages == 0) return false;
  if (pages > host_pages_->num_free()) return false;
  // Who rests has no part in the step that brings it back, and would not learn that this failed.
  if (seq.num_left() == 0) return false;
  if (how == Preemption::kSwap) return true;
  const bool known = costs_.page_ms > 0 && costs_.token_ms > 0;
  return known && 2 * pages * costs_.page_ms < seq.num_computed * costs_.token_ms;
}

void Scheduler::PutBack(Sequence& seq, Preemption how) {
  KU_CHECK(seq.num_pending == 0, "a plan is not committed");
  if (MustSlide(seq)) Slide(seq);
  if (ShouldSwap(seq, how)) {
    SwapOut(seq);
    ++stats_.preempted_swap;
  } else {
    if (reuse_ != nullptr && !seq.pages.empty()) {
      reuse_->Finished(std::span(seq.tokens).first(seq.num_computed), seq.pages, &seq.cursor);
    }
    ReleasePages(seq);
    seq.num_computed = 0;
    ++stats_.preempted_recompute;
  }
  ++seq.num_preempted;
  const auto it = FindRunning(seq);
  waiting_.emplace(seq.rank, std::move(*it));
  running_.erase(it);
  first_must_wait_ = false;
}

void Scheduler::SwapOut(Sequence& seq) {
  const int count = PagesFor(seq.num_computed);
  KU_CHECK(host_pages_->Allocate(count, &seq.host_pages));
  for (int i = 0; i < count; ++i) moves_.push_back({seq.pages[i], seq.host_pages[i], true});
  stats_.pages_swapped_out += count;
  ReleasePages(seq);
}

// The pages that were matched in the prefix tree are there already.
void Scheduler::SwapIn(Sequence& seq, StepPlan* plan) {
  const size_t matched = seq.pages.size();
  KU_CHECK(GrowTo(seq, seq.num_computed, plan), "an admitted sequence finds its pages");
  for (size_t i = matched; i < seq.host_pages.size(); ++i) {
    moves_.push_back({seq.pages[i], seq.host_pages[i], false});
    ++stats_.pages_swapped_in;
  }
  host_pages_->Release(seq.host_pages);
  seq.host_pages.clear();
}

// The sequence goes on as if its text had been the first tokens and the newest half. What is kept
// is computed again: its keys and values depend on what is dropped, and so on the dropping. In
// tokens, not in pages, so that it is the same for every page size and without pages.
void Scheduler::Slide(Sequence& seq) {
  const int sinks = std::min(kSinkTokens, window_ / 4);
  const int kept = sinks + std::max(1, (window_ - sinks) / 2);
  const int dropped = seq.num_tokens() - kept;
  const int dropped_prompt = std::clamp(seq.num_prompt - sinks, 0, dropped);
  const auto begin = seq.tokens.begin() + sinks;
  seq.tokens.erase(begin, begin + dropped);
  seq.num_prompt -= dropped_prompt;
  seq.num_dropped += dropped;
  seq.num_dropped_generated += dropped - dropped_prompt;
  seq.counts = {};  // penalties look at the text that is left
  ReleasePages(seq);
  seq.num_computed = 0;
  ++stats_.slides;
}

void Scheduler::ReleasePages(Sequence& seq) {
  pool_.Release(seq.pages);
  seq.pages.clear();
  seq.cursor = {};
}

}  // namespace kuiper
