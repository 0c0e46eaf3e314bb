// Handles sequences when pages run out. A sequence is preempted, which discards its keys and values
// or moves them to host memory, or it loses the oldest part of its text. The scheduler decides
// which sequence and when.
#pragma once

#include <cstdint>

#include "kuiper/engine/policy.h"
#include "kuiper/engine/sequence_pages.h"
#include "kuiper/engine/sequence_queue.h"

namespace kuiper {

// Costs that decide Preemption::kAuto. Nothing is swapped until both are known.
struct SwapCosts {
  double token_ms = 0;  // to compute one prompt token
  double page_ms = 0;   // to move one page one way
};

class Preempter {
 public:
  // OnFull::kSlide: leading tokens that are kept as attention sinks (StreamingLLM,
  // arXiv:2309.17453).
  static constexpr int kSinkTokens = 4;

  struct Stats {
    int64_t preempted_recompute = 0, preempted_swap = 0;
    int64_t pages_swapped_out = 0, pages_swapped_in = 0;
    int64_t slides = 0;
  };

  // `window`: a sequence with more tokens than this slides; 0: no sequence slides.
  Preempter(SequencePages& pages, SequenceQueue& queue, int window)
      : pages_(pages), queue_(queue), window_(window) {}

  // Preempts a running sequence: it waits again.
  void Preempt(Sequence& seq, Preemption how);
  // Preempts a paused sequence because others wait for its pages; the statistics do not count it.
  void DiscardPages(Sequence& seq);
  // Gives a swapped-out sequence its pages back, except those that it already has.
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
  SequenceQueue& queue_;
  int window_;
  SwapCosts costs_;
  Stats stats_;
};

}  // namespace kuiper
