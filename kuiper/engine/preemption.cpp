#include "kuiper/engine/preemption.h"

#include <algorithm>

#include "kuiper/base/check.h"

namespace kuiper {

// Swapping moves every page twice; recomputing computes every token. Pages kept by the prefix tree
// do not count as saved: the pool is full, so they will soon be evicted.
bool Preempter::ShouldSwap(const Sequence& seq, Preemption how) const {
  const int pages = pages_.PagesFor(seq.num_computed);
  if (how == Preemption::kRecompute || pages == 0 || !pages_.HasRoomOnHost(seq)) return false;
  // A paused sequence has no part in the step that would swap it in, so it would not get the error
  // if that failed.
  if (seq.is_paused) return false;
  if (how == Preemption::kSwap) return true;
  const bool known = costs_.page_ms > 0 && costs_.token_ms > 0;
  return known && 2 * pages * costs_.page_ms < seq.num_computed * costs_.token_ms;
}

void Preempter::Preempt(Sequence& seq, Preemption how) {
  KU_CHECK(seq.num_pending == 0, "a plan is not committed");
  if (MustSlide(seq)) Slide(seq);
  if (!ShouldSwap(seq, how)) {
    DiscardPages(seq);
    ++stats_.preempted_recompute;
    return;
  }
  stats_.pages_swapped_out += pages_.SwapOut(seq);
  ++stats_.preempted_swap;
  ++seq.num_preempted;
  queue_.Preempt(seq);
}

// The whole sequence is computed again when it next runs.
void Preempter::DiscardPages(Sequence& seq) {
  pages_.InsertPages(seq);
  pages_.Release(seq);
  seq.num_computed = 0;
  ++seq.num_preempted;
  queue_.Preempt(seq);
}

void Preempter::SwapIn(Sequence& seq, std::vector<StepPlan::PageCopy>* copies) {
  stats_.pages_swapped_in += pages_.SwapIn(seq, copies);
}

// The sequence continues as if its text were the first tokens and the newest half. The kept tokens
// are computed again: their keys and values depend on the dropped tokens, and so on when these were
// dropped. The window is counted in tokens, not pages, so that the result is the same for every
// page size and for contiguous caches.
void Preempter::Slide(Sequence& seq) {
  const int sinks = std::min(kSinkTokens, window_ / 4);
  const int kept = sinks + std::max(1, (window_ - sinks) / 2);
  const int dropped = seq.num_tokens() - kept;
  const int dropped_prompt = std::clamp(seq.num_prompt - sinks, 0, dropped);
  const auto drop = [&](auto& of_tokens) {
    const int count = static_cast<int>(of_tokens.size());
    const int begin = std::min(sinks, count), end = std::min(sinks + dropped, count);
    of_tokens.erase(of_tokens.begin() + begin, of_tokens.begin() + end);
  };
  drop(seq.tokens);
  drop(seq.keys);
  seq.num_prompt -= dropped_prompt;
  seq.num_dropped += dropped;
  seq.num_dropped_generated += dropped - dropped_prompt;
  seq.counts = {};  // penalties count only the remaining text
  pages_.Release(seq);
  seq.num_computed = 0;
  ++stats_.slides;
}

}  // namespace kuiper
