// What happens to sequences when pages run out: they are put back in line, their keys and values
// forgotten or in host memory, or lose the oldest part of their text. The scheduler decides who and
// when.
#pragma once

#include <cstdint>

#include "kuiper/engine/policy.h"
#include "kuiper/engine/sequence_line.h"
#include "kuiper/engine/sequence_pages.h"

namespace kuiper {

// What decides Preemption::kAuto. Nothing is swapped until both are known.
struct SwapCosts {
  double token_ms = 0;  // to compute a token of a prompt
  double page_ms = 0;   // to move a page one way
};

class Preempter {
 public:
  // OnFull::kSlide: first tokens that stay, as attention sinks (StreamingLLM, arXiv:2309.17453).
  static constexpr int kSinkTokens = 4;

  struct Stats {
    int64_t preempted_recompute = 0, preempted_swap = 0;
    int64_t pages_swapped_out = 0, pages_swapped_in = 0;
    int64_t slides = 0;
  };

  // `window`: a sequence with more tokens slides; 0: none does.
  Preempter(SequencePages& pages, SequenceLine& line, int window)
      : pages_(pages), line_(line), window_(window) {}

  // A running sequence waits again.
  void PutBack(Sequence& seq, Preemption how);
  // The same for one that rests while others wait for its pages; it does not count as preempted.
  void GiveUpPages(Sequence& seq);
  // One that was swapped out gets its pages back, but those that it has already.
  void SwapIn(Sequence& seq, std::vector<StepPlan::PageCopy>* copies);
  bool MustSlide(const Sequence& seq) const { return window_ > 0 && seq.num_tokens() > window_; }
  void Slide(Sequence& seq);

  void set_costs(const SwapCosts& costs) { costs_ = costs; }
  const SwapCosts& costs() const { return costs_; }
  const Stats& stats() const { return stats_; }
  int64_t num_preempted() const { return stats_.preempted_recompute + stats_.preempted_swap; }

 private:
  bool ShouldSwap(const Sequence& seq, Preemption how) const;

  SequencePages& pages_;
  SequenceLine& line_;
  int window_;
  SwapCosts costs_;
  Stats stats_;
};

}  // namespace kuiper
