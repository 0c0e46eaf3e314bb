// What the sequences of a step share: pages at the beginning of their tables, which attention may
// read once for all of them (AttnMeta::shared_lens). Pure host logic.
#pragma once

#include "kuiper/engine/sequence.h"

namespace kuiper {

// The shortest split of the CUDA kernels, and two tiles of the CPU's.
inline constexpr int kMinSharedTokens = 128;

// Moves decodes whose sequences begin with the same page next to each other, behind the first of
// them. Otherwise the order stays.
void GroupByFirstPage(StepPlan* plan);

// How many of the first tokens of both sequences lie on the same pages, of those that were computed
// before: 0 if they are fewer than kMinSharedTokens or an entry computes more than one token.
int SharedTokens(const StepPlan::Entry& a, const StepPlan::Entry& b, int page_size);

}  // namespace kuiper
