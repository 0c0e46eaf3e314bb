// Helpers for tests that make step plans by hand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kuiper/engine/step_plan.h"

namespace kuiper::test {

struct HandMade {
  int64_t sequence = 1;
  int begin = 0;
  std::vector<int32_t> tokens = {};
  std::vector<int32_t> pages = {};
  int num_kept_pages = 0;
  bool decodes = false;
  bool samples = false;                   // the last row, greedily
  std::vector<int32_t> logits_rows = {};  // rows of `tokens`
};

// Appends an entry with one position axis.
inline void Append(const HandMade& made, StepPlan* plan) {
  StepPlan::Entry& entry = plan->Open(made.sequence, made.begin);
  entry.decodes = made.decodes;
  entry.num_kept_pages = made.num_kept_pages;
  for (size_t i = 0; i < made.tokens.size(); ++i) {
    plan->tokens.push_back(TokenRef::Known(made.tokens[i]));
    plan->positions.push_back(made.begin + static_cast<int32_t>(i));
  }
  plan->pages.insert(plan->pages.end(), made.pages.begin(), made.pages.end());
  if (made.samples) {
    plan->samples.push_back({.row = static_cast<int32_t>(made.tokens.size()) - 1});
  }
  plan->logits_rows.insert(plan->logits_rows.end(), made.logits_rows.begin(),
                           made.logits_rows.end());
  plan->Close();
}

inline StepPlan PlanOf(const std::vector<HandMade>& entries) {
  StepPlan plan;
  for (const HandMade& entry : entries) Append(entry, &plan);
  return plan;
}

}  // namespace kuiper::test
