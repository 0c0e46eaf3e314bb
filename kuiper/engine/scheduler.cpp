#include "kuiper/engine/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

namespace kuiper {

Scheduler::Scheduler(const Limits& limits, BlockPool& pool, KvReuse* reuse)
    : limits_(limits), pool_(pool), reuse_(reuse) {
  KU_CHECK(limits.max_seqs > 0 && limits.max_step_tokens >= limits.max_seqs);
}

int Scheduler::PagesFor(int num_tokens) const {
  return (num_tokens + pool_.page_size() - 1) / pool_.page_size();
}

Status ContextExceeded(int num_tokens, int max_context) {
  return Status(StatusCode::kContextExceeded,
                "prompt is " + std::to_string(num_tokens) + " tokens but the context is " +
                    std::to_string(max_context) + " (code context_length_exceeded)");
}

Status Scheduler::Add(std::unique_ptr<Sequence> seq) {
  const int prompt = seq->num_prompt;
  if (prompt >= limits_.max_context) {
    return ContextExceeded(prompt, limits_.max_context);
  }
  if (PagesFor(prompt) > pool_.num_pages()) {
    return Status(StatusCode::kResourceExhausted,
                  "prompt is " + std::to_string(prompt) + " tokens but the KV cache holds " +
                      std::to_string(int64_t{pool_.num_pages()} * pool_.page_size()) + " (" +
                      std::to_string(pool_.num_pages()) + " blocks)",
                  "raise --num-blocks or --kv-cache-memory, or shorten the prompt");
  }
  // The last generated token is never fed back, so its K/V need no place.
  const int64_t wanted = int64_t{prompt} + std::max(seq->max_new_tokens, 1);
  const int longest = static_cast<int>(std::min<int64_t>(limits_.max_context, wanted)) - 1;
  seq->reserved_pages = std::max(PagesFor(longest), PagesFor(prompt));
  waiting_.push_back(std::move(seq));
  return OkStatus();
}

// Makes seq.pages cover num_tokens tokens; evicts reusable pages if the free ones do not suffice.
bool Scheduler::GrowTo(Sequence& seq, int num_tokens) {
  const int missing = PagesFor(num_tokens) - static_cast<int>(seq.pages.size());
  if (missing <= 0) return true;
  if (reuse_ != nullptr && pool_.num_free() < missing) {
    reuse_->Evict(missing - pool_.num_free());
  }
  return pool_.Allocate(missing, &seq.pages);
}

// Admits when the promises to all running sequences and to this one can be kept at the same time,
// or when nothing else runs.
bool Scheduler::TryAdmit(Sequence& seq) {
  if (reuse_ != nullptr) {
    // At least one row must be computed: it yields the first logits.
    PrefixCache::Match match = reuse_->Acquire(seq.tokens, seq.num_tokens() - 1);
    seq.pages = std::move(match.pages);
    seq.num_computed = seq.num_cached = match.num_tokens;
  }
  int promised = 0;
  for (const auto& other : running_) {
    promised += std::max(0, other->reserved_pages - static_cast<int>(other->pages.size()));
  }
  const int needed = seq.reserved_pages - static_cast<int>(seq.pages.size());
  const int available = pool_.num_free() + (reuse_ != nullptr ? reuse_->num_evictable() : 0);
  if (running_.empty() || promised + needed <= available) return true;
  for (int32_t page : seq.pages) pool_.Release(page);
  seq.pages.clear();
  seq.num_computed = seq.num_cached = 0;
  return false;
}

void Scheduler::AddEntry(Sequence& seq, int num_tokens, Step* step) {
  if (!GrowTo(seq, seq.num_computed + num_tokens)) {
    step->out_of_pages.push_back(&seq);
    return;
  }
  const bool samples = seq.num_computed + num_tokens == seq.num_tokens();
  step->plan.entries.push_back(
      {.seq = &seq, .begin = seq.num_computed, .num_tokens = num_tokens, .samples = samples});
  step->plan.num_tokens += num_tokens;
}

void Scheduler::Advance(StepPlan* plan) {
  for (const StepPlan::Entry& entry : plan->entries) {
    Sequence& seq = *entry.seq;
    seq.num_computed = entry.end();
    if (!entry.samples) continue;
    seq.tokens.push_back(kPendingToken);
    ++seq.num_pending;
  }
}

Scheduler::Step Scheduler::Schedule() {
  Step step;
  for (const auto& seq : running_) {  // decodes: one token each, and there is room for all of them
    if (seq->num_tokens() - seq->num_computed == 1) AddEntry(*seq, 1, &step);
  }
  step.plan.decode_only = !step.plan.entries.empty();
  auto add_chunk = [&](Sequence& seq) {
    const int left = seq.num_tokens() - seq.num_computed;
    const int chunk = std::min(left, limits_.max_step_tokens - step.plan.num_tokens);
    if (chunk <= 0) return;
    AddEntry(seq, chunk, &step);
    step.plan.decode_only = false;
  };
  for (const auto& seq : running_) {
    if (seq->num_tokens() - seq->num_computed > 1) add_chunk(*seq);
  }
  while (!waiting_.empty() && !first_must_wait_ &&
         static_cast<int>(running_.size()) < limits_.max_seqs &&
         step.plan.num_tokens < limits_.max_step_tokens) {
    if (!TryAdmit(*waiting_.front())) {
      first_must_wait_ = true;
      break;
    }
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    add_chunk(*running_.back());
  }
  Advance(&step.plan);
  return step;
}

void Scheduler::Commit(const StepPlan& plan, const std::vector<int32_t>& sampled) {
  size_t next = 0;
  for (const StepPlan::Entry& entry : plan.entries) {
    const int32_t token = entry.samples ? sampled.at(next++) : 0;
    if (entry.seq == nullptr) continue;
    Sequence& seq = *entry.seq;
    if (token < 0) {
      seq.tokens.resize(seq.num_known());
      seq.num_pending = 0;
      seq.num_computed = entry.begin;
      continue;
    }
    if (reuse_ != nullptr && entry.end() / pool_.page_size() > entry.begin / pool_.page_size()) {
      reuse_->Computed(std::span(seq.tokens).first(entry.end()), seq.pages);
    }
    if (!entry.samples) continue;
    seq.tokens[seq.num_known()] = token;
    --seq.num_pending;
  }
  KU_CHECK(next == sampled.size());
}

std::unique_ptr<Sequence> Scheduler::Finish(int64_t id, bool reusable) {
  const auto is_it = [id](const auto& seq) { return seq->id == id; };
  std::unique_ptr<Sequence> seq;
  if (auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    seq = std::move(*it);
    running_.erase(it);
  } else if (auto w = std::find_if(waiting_.begin(), waiting_.end(), is_it); w != waiting_.end()) {
    seq = std::move(*w);
    waiting_.erase(w);
  } else {
    return nullptr;
  }
  seq->tokens.resize(seq->num_known());
  seq->num_pending = 0;
  seq->num_computed = std::min(seq->num_computed, seq->num_tokens());
  if (reuse_ != nullptr && reusable) {
    reuse_->Finished(std::span(seq->tokens).first(seq->num_computed), seq->pages);
  }
  for (int32_t page : seq->pages) pool_.Release(page);
  first_must_wait_ = false;
  return seq;
}

Sequence* Scheduler::Find(int64_t id) {
  for (const auto& seq : running_) {
    if (seq->id == id) return seq.get();
  }
  for (const auto& seq : waiting_) {
    if (seq->id == id) return seq.get();
  }
  return nullptr;
}

}  // namespace kuiper
