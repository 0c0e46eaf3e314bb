#include "kuiper/engine/plan_maker.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/engine/shared_pages.h"

namespace kuiper {
namespace {

void UpdateCounts(Sequence& seq) {
  TokenCounts& counts = seq.counts;
  for (; counts.num_seen < seq.num_known(); ++counts.num_seen) {
    const int32_t id = seq.tokens[counts.num_seen];
    const auto [it, is_new] = counts.index.try_emplace(id, static_cast<int>(counts.list.size()));
    if (is_new) counts.list.push_back({.token = id});
    if (counts.num_seen >= seq.num_prompt) ++counts.list[it->second].count;
  }
}

// Returns the range of the appended part in the array.
template <typename T>
Range Append(const std::vector<T>& part, std::vector<T>* array) {
  const auto begin = static_cast<int32_t>(array->size());
  array->insert(array->end(), part.begin(), part.end());
  return {begin, static_cast<int32_t>(array->size())};
}

}  // namespace

void PlanMaker::Add(Sequence& seq, int count) {
  // Do not decide by the number of tokens. The results of a row may depend on whether it decodes
  // (ApplyArgs). They must depend neither on how other requests split the prompt nor on a
  // preemption.
  const bool decodes = seq.num_computed >= seq.num_prompt;
  (decodes ? decodes_ : prompts_).push_back({&seq, count});
  num_tokens_ += count;
}

void PlanMaker::Emit(const Work& work, bool decodes) {
  Sequence& seq = *work.seq;
  StepPlan::Entry& entry = plan_.Open(seq.id, seq.num_computed);
  entry.decodes = decodes;
  entry.num_kept_pages = seq.num_sent_pages;
  const int end = seq.num_computed + work.count, num_known = std::min(end, seq.num_known());
  for (int pos = seq.num_computed; pos < num_known; ++pos) {
    plan_.tokens.push_back(TokenRef::Known(seq.tokens[pos]));
  }
  if (num_known < end) {
    KU_CHECK(num_known + 1 == end, "only the last token may be unknown");
    plan_.tokens.push_back(TokenRef::Sampled(seq.sampled_row));
  }
  emitted_.push_back(&seq);
  AppendOverrides(seq.overrides, entry.begin, end, &plan_.overrides);
  for (; seq.num_sent_pages < static_cast<int>(seq.pages.size()); ++seq.num_sent_pages) {
    plan_.pages.push_back(seq.pages[seq.num_sent_pages]);
  }
  const bool samples = work.count == seq.num_left();
  for (; seq.next_prompt_row < std::min(end, seq.num_prompt - 1); ++seq.next_prompt_row) {
    plan_.logits_rows.push_back(seq.next_prompt_row - entry.begin);
  }
  if (end >= seq.num_prompt - 1) seq.next_prompt_row = Sequence::kNone;
  seq.num_computed = end;
  seq.is_launched = false;
  if (samples) {
    seq.sampled_row = static_cast<int>(plan_.samples.size());
    ++seq.num_pending;
    if (seq.sampling.has_penalties()) UpdateCounts(seq);
    plan_.samples.push_back({.row = work.count - 1,
                             .index = seq.num_generated() - 1,
                             .params = seq.sampling,
                             .penalties = Append(seq.counts.list, &plan_.penalties),
                             .biases = Append(seq.last_biases(), &plan_.biases)});
    if (seq.hidden_of == seq.num_generated() - 1) plan_.hidden_rows.push_back(work.count - 1);
  }
  plan_.Close();
}

StepPlan PlanMaker::Make() {
  const size_t num_entries = decodes_.size() + prompts_.size();
  plan_.entries.reserve(num_entries);
  plan_.samples.reserve(num_entries);
  plan_.tokens.reserve(num_tokens_);
  plan_.positions.reserve(num_axes_ * num_tokens_);
  if (groups_) {
    first_pages_.clear();
    for (const Work& work : decodes_) first_pages_.push_back(work.seq->pages.at(0));
    if (first_pages_ != ordered_pages_) {
      order_ = GroupByFirstPage(first_pages_);
      ordered_pages_ = first_pages_;
    }
    for (const int i : order_) Emit(decodes_[i], true);
  } else {
    for (const Work& work : decodes_) Emit(work, true);
  }
  for (const Work& work : prompts_) Emit(work, false);
  plan_.num_axes = num_axes_;
  for (int axis = 0; axis < num_axes_; ++axis) {
    for (size_t i = 0; i < num_entries; ++i) {
      const StepPlan::Entry& entry = plan_.entries[i];
      AppendPositions(emitted_[i]->overrides, entry.begin, entry.end(), axis, &plan_.positions);
    }
  }
  emitted_.clear();
  decodes_.clear();
  prompts_.clear();
  num_tokens_ = 0;
  StepPlan next;
  if (!spare_.empty()) {
    next = std::move(spare_.back());
    spare_.pop_back();
  }
  return std::exchange(plan_, std::move(next));
}

void PlanMaker::Recycle(StepPlan plan) {
  plan.Clear();
  spare_.push_back(std::move(plan));
}

}  // namespace kuiper
