// Helpers for tests of the scheduler: a fake model that answers plans.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/engine/scheduler.h"

namespace kuiper::test {

// One outcome per sample of the plan; token(entry) is the model's answer.
template <typename TokenOf>
std::vector<Scheduler::Outcome> Outcomes(const StepPlan& plan, const TokenOf& token) {
  std::vector<Scheduler::Outcome> outcomes;
  for (const StepPlan::Entry& entry : plan.entries) {
    if (!entry.samples.empty()) outcomes.push_back(Scheduler::Token{token(entry)});
  }
  return outcomes;
}

inline std::vector<uint64_t> Keys(const std::vector<int32_t>& tokens) {
  return {tokens.begin(), tokens.end()};
}

}  // namespace kuiper::test
