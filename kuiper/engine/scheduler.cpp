#include "kuiper/engine/scheduler.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace kuiper {

Scheduler::Scheduler(const Limits& limits, BlockPool& pool, KvReuse* reuse, BlockPool* host_pages)
    : limits_(limits), pool_(pool), reuse_(reuse), host_pages_(host_pages) {
  KU_CHECK(limits.max_seqs > 0 && limits.max_step_tokens >= limits.max_seqs);
  if (limits.policy == SchedulingPolicy::kLatency) {
    limits_.max_seqs = std::min(limits.max_seqs, kLatencySeqs);
  }
  const int64_t pool_tokens = int64_t{pool.num_pages()} * pool.page_size();
  window_ = static_cast<int>(std::min<int64_t>(limits.max_context, pool_tokens));
}

int Scheduler::PagesFor(int num_tokens) const {
  return (num_tokens + pool_.page_size() - 1) / pool_.page_size();
}

// Pages that are kept for a sequence before others are admitted.
int Scheduler::PagesPromised(const Sequence& seq) const {
  if (limits_.on_full != OnFull::kPreempt) return seq.max_pages;
  // All it knows, and one more page: a newcomer shall not cost somebody a preemption at once.
  return std::min(PagesFor(seq.num_tokens()) + 1, seq.max_pages);
}

int Scheduler::PagesPromisedToRunning() const {
  int promised = 0;
  std::map<int32_t, int> writers;  // of shared pages
  for (const auto& seq : running_) {
    promised += std::max(0, PagesPromised(*seq) - static_cast<int>(seq->pages.size()));
    if (IsWritePageShared(*seq)) ++writers[seq->pages[seq->num_computed / pool_.page_size()]];
  }
  // Of a page that several will write to, all get a copy but one if nobody else needs it.
  for (const auto& [page, count] : writers) {
    promised += std::min(count, pool_.ref_count(page) - 1);
  }
  return promised;
}

int Scheduler::PagesAvailable() const {
  return pool_.num_free() + (reuse_ != nullptr ? reuse_->num_evictable() : 0);
}

bool Scheduler::HasSeat() const {
  return num_running() < limits_.max_seqs;
}

Status ContextExceeded(int num_tokens, int max_context) {
  return Status(StatusCode::kContextExceeded,
                "prompt is " + std::to_string(num_tokens) + " tokens but the context is " +
                    std::to_string(max_context) + " (code context_length_exceeded)");
}

// Checks the prompt and says how many pages the sequence may grow to.
Status Scheduler::Check(Sequence& seq) const {
  const int prompt = seq.num_prompt;
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
  const int64_t wanted = int64_t{prompt} + std::max(seq.max_new_tokens, 1) - 1;
  const int most = limits_.on_full == OnFull::kSlide ? window_ : limits_.max_context - 1;
  const int longest = static_cast<int>(std::min<int64_t>(most, wanted));
  seq.max_pages = std::max(PagesFor(longest), PagesFor(prompt));
  return OkStatus();
}

void Scheduler::Wait(std::unique_ptr<Sequence> seq) {
  by_id_[seq->id] = seq.get();
  const Sequence::Rank rank = seq->rank;
  const auto added = waiting_.emplace(rank, std::move(seq)).first;
  if (added == waiting_.begin()) first_must_wait_ = false;
}

Status Scheduler::Add(std::unique_ptr<Sequence> seq) {
  KU_RETURN_IF_ERROR(Check(*seq));
  seq->rank.arrival = num_added_++;
  seq->rank.due = seq->rank.arrival - int64_t{kArrivalsPerPriority} * seq->priority;
  Wait(std::move(seq));
  return OkStatus();
}

Status Scheduler::Fork(int64_t parent_id, std::unique_ptr<Sequence> child) {
  const Sequence* parent = Find(parent_id);
  if (parent == nullptr) return Add(std::move(child));
  KU_RETURN_IF_ERROR(Check(*child));
  child->rank = parent->rank;
  child->rank.fork = ++num_forked_;
  if (!Runs(*parent) || !HasSeat() || parent->num_dropped > 0) {
    Wait(std::move(child));
    return OkStatus();
  }
  const std::span known = std::span(parent->tokens).first(parent->num_computed);
  const std::span wanted = std::span(child->tokens).first(child->num_tokens() - 1);
  const auto same = std::mismatch(known.begin(), known.end(), wanted.begin(), wanted.end()).first;
  child->num_computed = child->num_cached = static_cast<int>(same - known.begin());
  child->pages.assign(parent->pages.begin(), parent->pages.begin() + PagesFor(child->num_computed));
  for (int32_t page : child->pages) pool_.AddRef(page);
  Sequence& seq = *child;
  const auto place = AddRunning(std::move(child));
  if (PagesPromisedToRunning() <= PagesAvailable()) {
    by_id_[seq.id] = &seq;
    return OkStatus();
  }
  ReleasePages(seq);
  seq.num_computed = seq.num_cached = 0;
  Wait(std::move(*place));
  running_.erase(place);
  return OkStatus();
}

// Whether the page that the next token of seq goes to is also somebody else's.
bool Scheduler::IsWritePageShared(const Sequence& seq) const {
  const size_t index = seq.num_computed / pool_.page_size();
  return index < seq.pages.size() && pool_.ref_count(seq.pages[index]) > 1;
}

// Makes seq.pages cover num_tokens tokens, and the pages of those not yet computed its own; evicts
// reusable pages if the free ones do not suffice.
bool Scheduler::GrowTo(Sequence& seq, int num_tokens, StepPlan* plan) {
  const bool copies = IsWritePageShared(seq);
  const int missing =
      std::max(0, PagesFor(num_tokens) - static_cast<int>(seq.pages.size())) + (copies ? 1 : 0);
  if (reuse_ != nullptr && pool_.num_free() < missing) {
    reuse_->Evict(missing - pool_.num_free());
  }
  if (!pool_.Allocate(missing, &seq.pages)) return false;
  if (copies) {
    int32_t& page = seq.pages[seq.num_computed / pool_.page_size()];
    const int kept = seq.num_computed % pool_.page_size();
    if (kept > 0) plan->copies.push_back({page, seq.pages.back(), kept});
    pool_.Release(page);
    page = seq.pages.back();
    seq.pages.pop_back();
  }
  return true;
}

// Tokens that one entry may compute: the rest of the prompt, or what was generated behind it.
int Scheduler::NumComputable(const Sequence& seq) {
  return seq.num_computed < seq.num_prompt ? seq.num_prompt - seq.num_computed : seq.num_left();
}

bool Scheduler::MustSlide(const Sequence& seq) const {
  return limits_.on_full == OnFull::kSlide && seq.num_tokens() > window_;
}

// GrowTo, taking pages back from those behind in line. False: the sequence has no part in this
// step. Nobody behind it has one yet either, so a plan never names a preempted sequence.
bool Scheduler::MakeRoom(Sequence& seq, int num_tokens, bool ahead, Step* step) {
  while (!GrowTo(seq, num_tokens, &step->plan)) {
    if (ahead) {
      step->must_settle = true;
      return false;
    }
    // A lone sequence may lack a page only for a copy: computed again, it needs none.
    const bool is_stuck = running_.size() == 1 && !IsWritePageShared(seq);
    if (limits_.on_full == OnFull::kStop || is_stuck) {
      step->out_of_pages.push_back(&seq);
      return false;
    }
    Sequence& last = *running_.back();
    PutBack(last, limits_.preemption);
    if (&last == &seq) return false;
  }
  return true;
}

// One token for each that decodes, and there is room for all of them; the others share the rest.
void Scheduler::PlanRunning(bool ahead, Step* step, std::vector<StepPlan::Entry>* chunks,
                            int* budget) {
  int num_decodes = 0;
  for (const auto& seq : running_) {
    if (!ahead && MustSlide(*seq)) Slide(*seq);
    num_decodes += seq->num_left() == 1;
  }
  *budget = limits_.max_step_tokens - num_decodes;
  if (limits_.policy == SchedulingPolicy::kLatency && num_decodes > 0) {
    *budget = std::min(*budget, kLatencyChunk);
  }
  for (size_t i = 0; i < running_.size(); ++i) {  // those behind i may be put back meanwhile
    Sequence& seq = *running_[i];
    if (MustSlide(seq)) {
      step->must_settle = true;
      continue;
    }
    const bool decodes = seq.num_left() == 1;
    const int count = decodes ? 1 : std::min(NumComputable(seq), *budget);
    if (count == 0 || !MakeRoom(seq, seq.num_computed + count, ahead, step)) continue;
    if (!decodes) *budget -= count;
    AddEntry(seq, count, step, chunks);
  }
}

void Scheduler::AddEntry(Sequence& seq, int count, Step* step,
                         std::vector<StepPlan::Entry>* chunks) {
  const bool samples = count == seq.num_left();
  // Not by the number of tokens: the bits of a row may depend on whether it decodes (Ops::Apply),
  // and shall depend neither on how others cut the prompt nor on a preemption.
  const bool decodes = seq.num_computed >= seq.num_prompt;
  (decodes ? step->plan.entries : *chunks)
      .push_back({.seq = &seq,
                  .begin = seq.num_computed,
                  .num_tokens = count,
                  .samples = samples,
                  .decodes = decodes});
}

void Scheduler::Advance(const StepPlan& plan) {
  for (const StepPlan::Entry& entry : plan.entries) {
    Sequence& seq = *entry.seq;
    seq.num_computed = entry.end();
    if (!entry.samples) continue;
    seq.tokens.push_back(kPendingToken);
    ++seq.num_pending;
  }
}

Scheduler::Step Scheduler::Schedule(bool ahead) {
  Step step;
  std::vector<StepPlan::Entry> chunks;
  int budget = 0;
  if (ahead) {
    step.must_settle = FirstIsHeldUp();
  } else {
    while (FirstIsHeldUp()) PutBack(*running_.back(), limits_.preemption);
  }
  const int64_t preempted = stats_.preempted_recompute + stats_.preempted_swap;
  PlanRunning(ahead, &step, &chunks, &budget);
  const bool is_full = stats_.preempted_recompute + stats_.preempted_swap > preempted;
  if (!is_full && !step.must_settle) Admit(&step, &chunks, budget);
  StepPlan& plan = step.plan;
  plan.decode_only = chunks.empty() && !plan.entries.empty() &&
                     std::all_of(plan.entries.begin(), plan.entries.end(), [](const auto& entry) {
                       return entry.num_tokens == 1 && entry.samples;
                     });
  plan.entries.insert(plan.entries.end(), chunks.begin(), chunks.end());
  for (const StepPlan::Entry& entry : plan.entries) plan.num_tokens += entry.num_tokens;
  const bool is_idle = plan.entries.empty() && step.out_of_pages.empty() && !ahead;
  if (is_idle && !running_.empty() && !waiting_.empty()) step.in_the_way = running_.back().get();
  step.moves = std::move(moves_);
  moves_.clear();
  Advance(plan);
  return step;
}

// Whether who is first in line waits for a seat or for pages of somebody behind it who runs.
bool Scheduler::FirstIsHeldUp() const {
  if (waiting_.empty() || running_.empty()) return false;
  const Sequence& first = *waiting_.begin()->second;
  if (running_.back()->rank < first.rank) return false;
  return !HasSeat() || PagesPromised(first) + PagesPromisedToRunning() > PagesAvailable();
}

Scheduler::Running::iterator Scheduler::AddRunning(std::unique_ptr<Sequence> seq) {
  const auto place = std::upper_bound(
      running_.begin(), running_.end(), seq->rank,
      [](const Sequence::Rank& rank, const auto& other) { return rank < other->rank; });
  return running_.insert(place, std::move(seq));
}

void Scheduler::Admit(Step* step, std::vector<StepPlan::Entry>* chunks, int budget) {
  while (!waiting_.empty() && !first_must_wait_ && HasSeat() && budget > 0) {
    Sequence& seq = *waiting_.begin()->second;
    // Moves come before copies, and could overwrite what is to be copied.
    if (!seq.host_pages.empty() && !step->plan.copies.empty()) return;
    if (!TryAdmit(seq, &step->plan)) {
      first_must_wait_ = true;
      return;
    }
    AddRunning(std::move(waiting_.begin()->second));
    waiting_.erase(waiting_.begin());
    const int count = std::min(NumComputable(seq), budget);
    if (!GrowTo(seq, seq.num_computed + count, &step->plan)) {
      KU_CHECK(running_.size() == 1, "only a lone sequence is admitted without the pages it needs");
      step->out_of_pages.push_back(&seq);
      return;
    }
    AddEntry(seq, count, step, chunks);
    budget -= count;
  }
}

// Admits when the promises to all running sequences and to this one can be kept at the same time,
// or when nothing else runs.
bool Scheduler::TryAdmit(Sequence& seq, StepPlan* plan) {
  const bool is_swapped = !seq.host_pages.empty();
  PrefixCache::Match match;
  if (reuse_ != nullptr) {
    // At least one row must be computed: it yields the next logits.
    match = reuse_->Acquire(seq.tokens, is_swapped ? seq.num_computed : seq.num_tokens() - 1);
  }
  const int needed = PagesPromised(seq) - static_cast<int>(match.pages.size());
  if (!running_.empty() && PagesPromisedToRunning() + needed > PagesAvailable()) {
    if (reuse_ != nullptr) reuse_->Return(seq.tokens, match);
    return false;
  }
  seq.pages = std::move(match.pages);
  seq.cursor = match.cursor;
  if (is_swapped) {
    SwapIn(seq, plan);
    return true;
  }
  seq.num_computed = match.num_tokens;
  if (seq.num_preempted == 0) seq.num_cached = match.num_tokens;
  return true;
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
    }
    if (token == kFailedToken) {
      seq.num_computed = entry.begin;
      continue;
    }
    if (reuse_ != nullptr && entry.end() / pool_.page_size() > entry.begin / pool_.page_size()) {
      reuse_->Computed(std::span(seq.tokens).first(entry.end()), seq.pages, &seq.cursor);
    }
    if (!entry.samples || token < 0) continue;
    seq.tokens[seq.num_known()] = token;
    --seq.num_pending;
  }
  KU_CHECK(next == sampled.size());
}

void Scheduler::Append(int64_t id, int32_t token) {
  Sequence* seq = Find(id);
  KU_CHECK(seq != nullptr && seq->num_pending == 0, "the sequence does not rest");
  seq->tokens.push_back(token);
}

std::unique_ptr<Sequence> Scheduler::Finish(int64_t id, bool reusable) {
  Sequence* found = Find(id);
  if (found == nullptr) return nullptr;
  by_id_.erase(id);
  std::unique_ptr<Sequence> seq;
  if (const auto w = waiting_.find(found->rank); w != waiting_.end()) {
    seq = std::move(w->second);
    waiting_.erase(w);
  } else {
    const auto it = FindRunning(*found);
    seq = std::move(*it);
    running_.erase(it);
  }
  seq->tokens.resize(seq->num_known());
  seq->num_pending = 0;
  seq->num_computed = std::min(seq->num_computed, seq->num_tokens());
  if (reuse_ != nullptr && reusable && !seq->pages.empty()) {
    reuse_->Finished(std::span(seq->tokens).first(seq->num_computed), seq->pages, &seq->cursor);
  }
  pool_.Release(seq->pages);
  if (host_pages_ != nullptr) host_pages_->Release(seq->host_pages);
  first_must_wait_ = false;
  return seq;
}

Sequence* Scheduler::Find(int64_t id) {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

Scheduler::Running::iterator Scheduler::FindRunning(const Sequence& seq) {
  const auto it = std::lower_bound(
      running_.begin(), running_.end(), seq.rank,
      [](const auto& other, const Sequence::Rank& rank) { return other->rank < rank; });
  KU_CHECK(it != running_.end() && it->get() == &seq, "the sequence does not run");
  return it;
}

}  // namespace kuiper
