#include "kuiper/engine/step_loop.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "kuiper/base/text.h"

namespace kuiper {

void StepLoop::Step() {
  requests_.EndAborted();
  std::erase_if(in_flight_, [this](const InFlight& step) {
    return std::none_of(step.plan.entries.begin(), step.plan.entries.end(),
                        [this](const StepPlan::Entry& entry) { return IsAlive(entry); });
  });
  if (in_flight_.empty()) LaunchNext();
  if (in_flight_.empty()) return;
  if (CanRunAhead()) LaunchNext();
  CollectOldest();
  EndAll(std::exchange(without_memory_, {}));
}

bool StepLoop::IsAlive(const StepPlan::Entry& entry) const {
  return scheduler_.Find(entry.sequence) != nullptr;
}

template <typename F>
void StepLoop::Ask(const StepPlan::Entry& entry, const F& f) {
  const Sequence* seq = scheduler_.Find(entry.sequence);
  if (seq != nullptr) requests_.Ask(seq->request, [&](DecodingStrategy& a) { f(a, *seq); });
}

void StepLoop::LaunchNext() {
  InFlight next;
  next.ahead = !in_flight_.empty();
  Scheduler::Step step = scheduler_.Schedule(next.ahead);
  EndOutOfPages(step.out_of_pages);
  must_not_run_ahead_ = step.must_not_run_ahead;
  EndWithoutMemory(storage_.Prepare(step), next.ahead, &step.plan);
  if (pictures_ != nullptr && !step.plan.entries.empty()) {
    const auto go_on = [this](int64_t source, double done) {
      return !on_encoding_ || requests_.IsPictureWanted(source, [&](int64_t request) {
        return on_encoding_(request, done);
      });
    };
    EndWithoutRows(pictures_->Prepare(go_on), &step.plan);
  }
  if (step.plan.entries.empty()) return DropUnlaunched(std::move(step.plan));
  for (const StepPlan::Entry& entry : step.plan.entries) {
    Ask(entry, [](DecodingStrategy& a, const Sequence& seq) { a.OnLaunch(seq.id); });
  }
  next.plan = std::move(step.plan);
  next.plan.ended.insert(next.plan.ended.end(), unsent_ended_.begin(), unsent_ended_.end());
  unsent_ended_.clear();
  next.launch_time = Clock::now();
  next.flight = Launch(next.plan);
  scheduler_.Launched(next.plan);
  in_flight_.push_back(std::move(next));
}

void StepLoop::DropUnlaunched(StepPlan plan) {
  unsent_ended_.insert(unsent_ended_.end(), plan.ended.begin(), plan.ended.end());
  scheduler_.Recycle(std::move(plan));
}

int StepLoop::Launch(StepPlan& plan) {
  if (plan.hidden_rows.empty()) return runner_.Launch(plan);
  plan.hidden_layers.resize(runner_.model().layers);
  std::iota(plan.hidden_layers.begin(), plan.hidden_layers.end(), 0);
  return runner_.Launch(plan, [&](int layer, int row, std::span<const float> values) {
    const auto entry = std::find_if(plan.entries.begin(), plan.entries.end(),
                                    [row](const StepPlan::Entry& e) { return row < e.tokens.end; });
    Ask(*entry,
        [&](DecodingStrategy& a, const Sequence& seq) { a.OnHidden(seq.id, layer, values); });
  });
}

void StepLoop::EndOutOfPages(const std::vector<const Sequence*>& seqs) {
  for (const Sequence* seq : seqs) {
    const BlockPool& pool = storage_.pool();
    const Status full(StatusCode::kResourceExhausted,
                      "KV cache is full (" + std::to_string(pool.num_used()) + "/" +
                          std::to_string(pool.num_pages()) + " blocks, " +
                          std::to_string(seq->num_computed) + " tokens) after " +
                          Counted(seq->num_generated(), "token"),
                      "raise " + Param("num_blocks") + " or " + Param("kv_cache_memory"));
    requests_.Ask(seq->request,
                  [&](DecodingStrategy& a) { a.End(seq->id, FinishReason::kContext, full); });
  }
}

bool StepLoop::CanRunAhead() {
  if (!run_ahead_ || must_not_run_ahead_) return false;
  bool can = true;
  for (const StepPlan::Entry& entry : in_flight_.back().plan.entries) {
    can = can && entry.logits_rows.empty();  // rows stay valid only until the next launch
    if (entry.samples.empty()) continue;
    Ask(entry,
        [&](DecodingStrategy& a, const Sequence& seq) { can = can && a.MayRunAhead(seq.id); });
  }
  return can;
}

void StepLoop::CollectOldest() {
  InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  const StepResult result = runner_.Take(step.flight);
  if (!in_flight_.empty()) Resolve(result, &in_flight_.front().plan);
  RecordSpeed(step);
  DeliverPromptLogits(step.plan);
  const Outcomes outcomes = Choose(step.plan, result);
  const Status not_finite = CheckFinite(step.plan, outcomes);
  scheduler_.Commit(step.plan, outcomes);
  DeliverTokens(step.plan, outcomes, not_finite);
  if (!not_finite.ok()) LaunchAgain();
  scheduler_.Recycle(std::move(step.plan));
}

void StepLoop::EndAll(const std::map<int64_t, Status>& errors) {
  std::set<std::pair<int64_t, int64_t>> failed;
  for (const auto& [sequence, error] : errors) {
    const Sequence* seq = scheduler_.Find(sequence);
    if (seq != nullptr) failed.emplace(seq->request, seq->id);
  }
  for (const auto& [request, sequence] : failed) {
    requests_.Ask(request, [&, id = sequence](DecodingStrategy& a) {
      a.End(id, FinishReason::kError, errors.at(id));
    });
  }
}

void StepLoop::DeliverPromptLogits(const StepPlan& plan) {
  const int num_samples = static_cast<int>(plan.samples.size());
  for (const StepPlan::Entry& entry : plan.entries) {
    for (int i = entry.logits_rows.begin; i < entry.logits_rows.end; ++i) {
      const float* row = runner_.HostLogits(num_samples + i);
      Ask(entry, [&](DecodingStrategy& a, const Sequence& seq) {
        a.OnPromptLogits(seq, entry.begin + plan.logits_rows[i],
                         {row, static_cast<size_t>(runner_.model().vocab)});
      });
    }
  }
}

void StepLoop::RemoveEntries(const std::map<int64_t, Status>& errors, StepPlan* plan) {
  std::vector<StepPlan::PageCopy> copies = std::move(plan->copies);
  StepPlan rest = plan->Only([&](const StepPlan::Entry& entry) {
    return IsAlive(entry) && !errors.contains(entry.sequence);
  });
  rest.copies = std::move(copies);
  must_not_run_ahead_ = true;  // rows are numbered differently than in the scheduler
  *plan = std::move(rest);
}

void StepLoop::EndWithoutMemory(const Status& prepared, bool ahead, StepPlan* plan) {
  if (prepared.ok()) return;
  const auto is_there = [this](int32_t page) { return page < storage_.usable_end(); };
  std::map<int64_t, Status> errors;
  for (const StepPlan::Entry& entry : plan->entries) {
    const Sequence* seq = scheduler_.Find(entry.sequence);
    if (seq == nullptr || std::ranges::all_of(seq->pages, is_there)) continue;
    errors.emplace(entry.sequence, prepared);
  }
  std::erase_if(plan->copies, [&](const StepPlan::PageCopy& copy) {
    return !is_there(copy.from) || !is_there(copy.to);
  });
  if (!ahead) EndAll(errors);
  RemoveEntries(errors, plan);
  if (ahead) without_memory_ = std::move(errors);
}

void StepLoop::EndWithoutRows(const std::map<int64_t, Status>& failed_sources, StepPlan* plan) {
  if (failed_sources.empty()) return;
  requests_.EndAborted();
  std::map<int64_t, Status> errors;
  for (const StepPlan::Entry& entry : plan->entries) {
    for (const StepPlan::EmbeddingOverride& patch : Part(plan->overrides, entry.overrides)) {
      const auto failed = failed_sources.find(patch.source);
      if (failed != failed_sources.end()) errors.emplace(entry.sequence, failed->second);
    }
  }
  EndAll(errors);
  RemoveEntries(errors, plan);
}

StepLoop::Outcomes StepLoop::Choose(const StepPlan& plan, const StepResult& result) {
  Outcomes outcomes(plan.samples.size(), Scheduler::Undecided());
  for (const StepPlan::Entry& entry : plan.entries) {
    if (entry.samples.empty()) continue;
    const int first = entry.samples.begin;
    std::vector<int32_t> sampled;
    for (const std::optional<int32_t>& token : result.Of(entry)) {
      if (token.has_value()) sampled.push_back(*token);
    }
    if (sampled.size() < result.Of(entry).size()) {
      outcomes[first] = Scheduler::Failed();
      continue;
    }
    const auto logits = [&](int row) {
      return std::span(runner_.HostLogits(first + row), runner_.model().vocab);
    };
    Ask(entry, [&](DecodingStrategy& a, const Sequence& seq) {
      const std::vector<int32_t> tokens = a.Choose(seq, sampled, logits);
      for (size_t i = 0; i < tokens.size(); ++i) outcomes[first + i] = Scheduler::Token{tokens[i]};
    });
  }
  return outcomes;
}

Status StepLoop::CheckFinite(const StepPlan& plan, const Outcomes& outcomes) {
  const auto failed =
      std::find_if(plan.entries.begin(), plan.entries.end(), [&](const StepPlan::Entry& entry) {
        return !entry.samples.empty() && IsAlive(entry) &&
               std::holds_alternative<Scheduler::Failed>(outcomes[entry.samples.begin]);
      });
  if (failed == plan.entries.end()) return OkStatus();
  const std::optional<int> layer = runner_.FirstNonFiniteLayer(
      plan.Only([this](const StepPlan::Entry& entry) { return IsAlive(entry); }));
  const std::string where = layer.has_value()
                                ? "layer scan: first bad layer " + std::to_string(*layer)
                                : "layer scan: all layers are finite, the output head is not";
  const Sequence& seq = *scheduler_.Find(failed->sequence);
  const bool may_overflow = runner_.model().dtype == DType::kF16 ||
                            runner_.kv().shape().format.element_type() == DType::kF16;
  return Status(StatusCode::kInternal,
                "model produced NaN at token " +
                    std::to_string(seq.num_generated() - seq.num_pending) + " (" + where + ")" +
                    (may_overflow ? "; try " + Param("dtype") + " bf16" : ""));
}

void StepLoop::DeliverTokens(const StepPlan& plan, const Outcomes& outcomes,
                             const Status& not_finite) {
  std::set<int64_t> resting;  // requests
  for (const StepPlan::Entry& entry : plan.entries) {
    Ask(entry, [&](DecodingStrategy& a, const Sequence& seq) {
      storage_.RecordTouched(seq);
      std::vector<int32_t> tokens;
      for (const Scheduler::Outcome& outcome : Part(outcomes, entry.samples)) {
        if (std::holds_alternative<Scheduler::Failed>(outcome)) {
          return a.End(seq.id, FinishReason::kError, not_finite);
        }
        const auto* token = std::get_if<Scheduler::Token>(&outcome);
        if (token != nullptr) tokens.push_back(token->id);
      }
      if (!tokens.empty()) return a.OnTokens(seq.id, tokens);
      if (!entry.samples.empty()) resting.insert(seq.request);
    });
  }
  for (const int64_t request : resting) {
    requests_.Ask(request, [](DecodingStrategy& a) { a.OnPaused(); });
  }
}

// The layer scan overwrote device results of the steps after the failed one. Only() drops page
// copies: they were already made, and their sources may have changed since.
void StepLoop::LaunchAgain() {
  for (InFlight& step : in_flight_) {
    step.plan = step.plan.Only([this](const StepPlan::Entry& entry) { return IsAlive(entry); });
    if (!step.plan.entries.empty()) step.flight = Launch(step.plan);
    must_not_run_ahead_ = true;  // rows are numbered differently than in the scheduler
  }
}

void StepLoop::RecordSpeed(const InFlight& step) {
  constexpr int kEnoughTokens = 16;
  // A step launched ahead started when the previous step ended.
  const Clock::time_point begin = std::max(step.launch_time, last_taken_);
  if (scheduler_.limits().policy == SchedulingPolicy::kLatency) {
    scheduler_.Observe(step.plan, MillisecondsSince(begin));
  }
  last_taken_ = Clock::now();
  if (step.ahead || step.plan.num_tokens() < kEnoughTokens) return;
  Scheduler::Costs costs = scheduler_.costs();
  costs.token_ms = MillisecondsSince(step.launch_time) / step.plan.num_tokens();
  scheduler_.set_costs(costs);
}

}  // namespace kuiper
