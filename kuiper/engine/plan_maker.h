// Turns the scheduler's decisions into a StepPlan: which tokens each sequence computes, in the
// order of the batch, with all rows numbered. It decides nothing but that order.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/engine/sequence.h"

namespace kuiper {

class PlanMaker {
 public:
  // `num_axes`: of positions. `group`: decodes of sequences that begin with the same page stand
  // next to each other.
  PlanMaker(int num_axes, bool group) : num_axes_(num_axes), groups_(group) {}

  // The sequence computes its next `count` tokens, and samples if they are all it has.
  void Add(Sequence& seq, int count);
  // The plan's copies of pages.
  std::vector<StepPlan::PageCopy>* copies() { return &plan_.copies; }
  // The plan of all that was added. Its sequences have advanced.
  StepPlan Make();
  // Takes a plan that is done with; one of the next uses its memory.
  void TakeBack(StepPlan plan);

 private:
  struct Work {
    Sequence* seq;
    int count;
  };
  void Emit(const Work& work, bool decodes);

  int num_axes_;
  bool groups_;
  StepPlan plan_;
  std::vector<StepPlan> spare_;  // empty plans with memory
  std::vector<Work> decodes_, prompts_;
  size_t num_tokens_ = 0;                 // of both
  std::vector<const Sequence*> emitted_;  // of each entry
  std::vector<int32_t> first_pages_;      // of the decodes
  std::vector<int32_t> ordered_pages_;    // those of the last step, and the order they stood in
  std::vector<int> order_;
};

}  // namespace kuiper
