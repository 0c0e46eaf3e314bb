#include "kuiper/engine/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kuiper/base/check.h"

namespace kuiper {

Scheduler::Scheduler(const Limits& limits, BlockPool& pool, KvReuse* reuse, BlockPool* host_pages,
                     EncoderCache* sources)
    : limits_(limits),
      pace_(limits.latency_target_ms, limits.max_step_tokens, limits.pass_rows),
      pages_(pool, reuse, host_pages, sources, limits.on_full),
      maker_(limits.num_axes, limits.group_decodes),
      preempter_(pages_, queue_, limits.on_full == OnFull::kSlide ? window() : 0) {
  KU_CHECK(limits.max_seqs > 0 && limits.max_step_tokens >= limits.max_seqs);
  if (limits.policy == SchedulingPolicy::kLatency) {
    limits_.max_seqs = std::min(limits.max_seqs, kLatencySeqs);
  }
}

int Scheduler::window() const {
  return static_cast<int>(std::min<int64_t>(limits_.max_context, pages_.num_tokens()));
}

// Checks the prompt and sets seq.max_pages.
Status Scheduler::Check(Sequence& seq) const {
  const int prompt = seq.num_prompt;
  KU_RETURN_IF_ERROR(CheckPromptFits(prompt, limits_.max_context));
  if (pages_.PagesFor(prompt) > pages_.num_total()) {
    return Status(StatusCode::kResourceExhausted,
                  "prompt is " + std::to_string(prompt) + " tokens but the KV cache holds " +
                      std::to_string(pages_.num_tokens()) + " (" +
                      std::to_string(pages_.num_total()) + " blocks)",
                  "raise " + Param("num_blocks") + " or " + Param("kv_cache_memory") +
                      ", or shorten the prompt");
  }
  // The last generated token is never fed back, so its K/V need no slot.
  const int64_t wanted = int64_t{prompt} + std::max(seq.max_new_tokens, 1) - 1;
  const int most = limits_.on_full == OnFull::kSlide ? window() : limits_.max_context - 1;
  const int longest = static_cast<int>(std::min<int64_t>(most, wanted));
  seq.max_pages = std::max(pages_.PagesFor(longest), pages_.PagesFor(prompt));
  return OkStatus();
}

Status Scheduler::Add(std::unique_ptr<Sequence> seq) {
  KU_RETURN_IF_ERROR(Check(*seq));
  seq->rank.arrival = num_added_++;
  seq->rank.effective_arrival = seq->rank.arrival - int64_t{kArrivalsPerPriority} * seq->priority;
  seq->num_reserved_seqs = std::min(seq->num_reserved_seqs, limits_.max_seqs);
  queue_.Wait(queue_.Add(std::move(seq)));
  return OkStatus();
}

Status Scheduler::Fork(int64_t parent_id, std::unique_ptr<Sequence> forked) {
  Sequence* parent = queue_.Find(parent_id);
  if (parent == nullptr) return Add(std::move(forked));
  parent->num_reserved_seqs = std::max(1, parent->num_reserved_seqs - 1);
  KU_RETURN_IF_ERROR(Check(*forked));
  Sequence& child = queue_.Add(std::move(forked));
  child.rank = parent->rank;
  child.rank.fork = ++num_forked_;
  const bool runs = parent->place == Sequence::Place::kRunning;
  if (!runs || !HasRoomForSeqs(1) || parent->num_dropped > 0) {
    queue_.Wait(child);
    return OkStatus();
  }
  child.num_computed = child.num_cached = pages_.Share(*parent, &child);
  queue_.Run(child);
  if (pages_.NumReservedFor(queue_.running()) <= pages_.num_available() &&
      pages_.HoldSources(child, child.num_computed)) {
    return OkStatus();
  }
  pages_.Release(child);
  child.num_computed = child.num_cached = 0;
  queue_.Wait(child);
  return OkStatus();
}

// Calls GrowTo, preempting lower-ranked sequences as needed. Returns false if the sequence has no
// part in this step. Lower-ranked sequences are not planned yet, so a plan never contains a
// preempted sequence.
bool Scheduler::MakeRoom(Sequence& seq, int num_tokens, bool ahead, Step* step) {
  while (!pages_.GrowTo(seq, num_tokens, maker_.copies())) {
    if (ahead) {
      step->must_not_run_ahead = true;
      return false;
    }
    // A lone sequence may lack a page only for a copy; after recomputing it needs no copy.
    const bool is_stuck = num_running() == 1 && !pages_.IsWritePageShared(seq);
    if (limits_.on_full == OnFull::kStop || is_stuck) {
      step->out_of_pages.push_back(&seq);
      return false;
    }
    const bool is_last = queue_.running().back() == &seq;
    PreemptLast();
    if (is_last) return false;
  }
  return true;
}

// Each decoding sequence gets one token, for which there is always room; the others share the
// remaining budget.
StepBudget Scheduler::PlanRunning(bool ahead, Step* step) {
  const std::vector<Sequence*>& running = queue_.running();
  int num_decodes = 0;
  for (Sequence* seq : running) {
    if (!ahead && preempter_.MustSlide(*seq)) preempter_.Slide(*seq);
    num_decodes += seq->num_left() == 1;
  }
  StepBudget budget{limits_.max_step_tokens - num_decodes, limits_.max_prompt_rows};
  if (limits_.policy == SchedulingPolicy::kLatency && num_decodes > 0) {
    budget.tokens = std::min(budget.tokens, pace_.Chunk(num_decodes));
  }
  for (size_t i = 0; i < running.size(); ++i) {  // sequences after i may be preempted meanwhile
    Sequence& seq = *running[i];
    if (preempter_.MustSlide(seq)) {
      step->must_not_run_ahead = true;
      continue;
    }
    StepBudget left = budget;
    const int count = seq.num_left() == 1 ? 1 : left.Spend(seq);
    if (count == 0 || !MakeRoom(seq, seq.num_computed + count, ahead, step)) continue;
    budget = left;
    maker_.Add(seq, count);
  }
  return budget;
}

Scheduler::Step Scheduler::Schedule(bool ahead) {
  Step step;
  if (ahead) {
    step.must_not_run_ahead = IsFirstBlocked();
  } else {
    while (IsFirstBlocked()) PreemptLast();
  }
  const int64_t preempted = preempter_.num_preempted();
  const StepBudget budget = PlanRunning(ahead, &step);
  const bool is_full = preempter_.num_preempted() > preempted;
  if (!is_full && !step.must_not_run_ahead) Admit(&step, budget);
  step.plan = maker_.Make();
  const bool is_idle = step.plan.entries.empty() && step.out_of_pages.empty() && !ahead;
  if (is_idle && num_running() > 0 && num_waiting() > 0) {
    // All running sequences are paused while others wait for pages: preempt the last one.
    Sequence& last = *queue_.running().back();
    KU_CHECK(last.is_paused, "a sequence that could continue was not scheduled");
    preempter_.DiscardPages(last);
  }
  // A step without entries is not launched.
  if (!step.plan.entries.empty()) step.plan.ended = std::exchange(ended_, {});
  step.moves = pages_.TakeMoves();
  return step;
}

// True if a lower-ranked sequence runs while the head of the queue lacks pages or exceeds max_seqs.
bool Scheduler::IsFirstBlocked() const {
  const Sequence* first = queue_.first();
  if (first == nullptr || num_running() == 0) return false;
  if (queue_.running().back()->rank < first->rank) return false;
  return !HasRoomForSeqs(first->num_reserved_seqs) ||
         pages_.NumReserved(*first) + pages_.NumReservedFor(queue_.running()) >
             pages_.num_available();
}

void Scheduler::Admit(Step* step, StepBudget budget) {
  while (queue_.first() != nullptr && !queue_.first_is_refused() &&
         budget.HasRoomFor(*queue_.first()) && HasRoomForSeqs(queue_.first()->num_reserved_seqs)) {
    Sequence& seq = *queue_.first();
    // Moves run before copies and could overwrite the source of a copy.
    if (!seq.host_pages.empty() && !queue_.HasSourcesOf(*maker_.copies())) return;
    if (!TryAdmit(seq)) {
      queue_.RefuseFirst();
      return;
    }
    queue_.Run(seq);
    const int count = budget.Spend(seq);
    if (!pages_.GrowTo(seq, seq.num_computed + count, maker_.copies())) {
      KU_CHECK(num_running() == 1, "only a lone sequence is admitted without the pages it needs");
      step->out_of_pages.push_back(&seq);
      return;
    }
    maker_.Add(seq, count);
  }
}

// Admits the sequence if the pages reserved for it and for all running sequences are available, or
// if nothing else runs. Its embedding sources must also fit next to those of other sequences.
bool Scheduler::TryAdmit(Sequence& seq) {
  const bool is_swapped = !seq.host_pages.empty();
  KvReuse::Match match = pages_.Acquire(seq, is_swapped ? seq.num_computed : seq.num_reusable());
  const int needed = pages_.NumReserved(seq) - static_cast<int>(match.pages.size());
  const int num_matched = match.num_tokens;
  if ((num_running() > 0 &&
       pages_.NumReservedFor(queue_.running()) + needed > pages_.num_available()) ||
      !pages_.HoldSources(seq, is_swapped ? seq.num_computed : num_matched)) {
    pages_.Return(seq, match);
    return false;
  }
  pages_.Take(std::move(match), &seq);
  if (is_swapped) {
    preempter_.SwapIn(seq, maker_.copies());
    return true;
  }
  seq.num_computed = num_matched;
  if (seq.num_preempted == 0) seq.num_cached = num_matched;
  return true;
}

void Scheduler::Commit(const StepPlan& plan, std::span<const Outcome> outcomes) {
  KU_CHECK(outcomes.size() == plan.samples.size());
  queue_.ForSequences(plan, [&](Sequence& seq, const StepPlan::Entry& entry) {
    const Outcome* outcome = entry.samples.empty() ? nullptr : &outcomes[entry.samples.begin];
    const Token* token = outcome == nullptr ? nullptr : std::get_if<Token>(outcome);
    if (outcome != nullptr && token == nullptr) seq.num_pending = 0;
    if (outcome != nullptr && std::holds_alternative<Failed>(*outcome)) {
      seq.num_computed = entry.begin;
      return;
    }
    if (pages_.Computed(seq, entry.begin, entry.end())) queue_.RetryFirst();
    if (token != nullptr) {
      seq.tokens.push_back(token->id);
      --seq.num_pending;
    } else {
      seq.is_paused = outcome != nullptr;
    }
  });
}

void Scheduler::Append(int64_t id, int32_t token) {
  Sequence* seq = queue_.Find(id);
  KU_CHECK(seq != nullptr && seq->is_paused, "the sequence is not paused");
  seq->tokens.push_back(token);
  seq->is_paused = false;
  if (seq->place == Sequence::Place::kApart) queue_.Wait(*seq);
}

void Scheduler::Preempt(int64_t id, Preemption how) {
  Sequence* seq = queue_.Find(id);
  KU_CHECK(seq != nullptr && seq->place == Sequence::Place::kRunning, "no such sequence runs");
  preempter_.Preempt(*seq, how);
}

std::unique_ptr<Sequence> Scheduler::Finish(int64_t id, bool reusable) {
  std::unique_ptr<Sequence> seq = queue_.Remove(id);
  if (seq == nullptr) return nullptr;
  ended_.push_back(id);
  seq->num_pending = 0;
  seq->num_computed = std::min(seq->num_computed, seq->num_tokens());
  if (reusable) pages_.InsertPages(*seq);
  seq->pages = pages_.Release(*seq);
  pages_.ReleaseHostPages(*seq);
  return seq;
}

}  // namespace kuiper
