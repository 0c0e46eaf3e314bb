// Turns the scheduler's decisions into a StepPlan: the tokens that each sequence computes, in batch
// order, with all rows numbered. The only decision made here is that order.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/engine/sequence.h"

namespace kuiper {

class PlanMaker {
 public:
  // `num_axes`: axes of positions. `group`: decodes of sequences that begin with the same page are
  // made adjacent.
  PlanMaker(int num_axes, bool group) : num_axes_(num_axes), groups_(group) {}

  // Schedules the next `count` tokens of the sequence, and a sample if these are all it has left.
  void Add(Sequence& seq, int count);
  // The page copies of the plan.
  std::vector<StepPlan::PageCopy>* copies() { return &plan_.copies; }
  // Returns the plan of all added work and advances its sequences.
  StepPlan Make();
  // Takes a finished plan; a later plan uses its memory.
  void Recycle(StepPlan plan);

 private:
  struct Work {
    Sequence* seq;
    int count;
  };
  void Emit(const Work& work, bool decodes);

  int num_axes_;
  bool groups_;
  StepPlan plan_;
  std::vector<StepPlan> spare_;  // empty plans whose memory is reused
  std::vector<Work> decodes_, prompts_;
  size_t num_tokens_ = 0;                 // tokens of decodes_ and prompts_
  std::vector<const Sequence*> emitted_;  // the sequence of each entry
  std::vector<int32_t> first_pages_;      // first page of each decode
  std::vector<int32_t> ordered_pages_;    // first_pages_ for which order_ was computed
  std::vector<int> order_;
};

}  // namespace kuiper
