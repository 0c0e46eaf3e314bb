// Decides which tokens of which sequences the next step computes: decodes first, then prompt chunks
// within the token budget. Pure host logic without tensors.
//
// There is one queue. A sequence ranks by its arrival, minus kArrivalsPerPriority for each step of
// priority. So requests of equal priority are served in order of arrival, and no sequence is
// overtaken forever. The highest-ranked sequence is admitted first, gets tokens first, and is
// preempted last. So it always advances, and every sequence becomes the highest-ranked one.
//
// OnFull::kPreempt admits what fits now. If the pool runs full, the lowest-ranked running sequence
// is preempted and waits again. A sequence that runs alone can use the whole pool; if it needs
// more, it ends with kContext. OnFull::kStop and kSlide admit only sequences that can be served to
// their end. There a full pool changes the answer, which must not depend on what else runs. A
// sequence that slides off shared pages may need more pages than were reserved for it; then the
// lowest-ranked sequence is preempted as well.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "kuiper/engine/chunk_pace.h"
#include "kuiper/engine/plan_maker.h"
#include "kuiper/engine/policy.h"
#include "kuiper/engine/preemption.h"
#include "kuiper/engine/sequence.h"
#include "kuiper/engine/sequence_pages.h"
#include "kuiper/engine/sequence_queue.h"
#include "kuiper/engine/step_budget.h"

namespace kuiper {

class Scheduler {
 public:
  static constexpr int kArrivalsPerPriority = 1000;
  static constexpr int kLatencySeqs = 2;  // most sequences with SchedulingPolicy::kLatency

  struct Limits {
    int max_seqs = 1;
    int max_step_tokens = 512;
    int max_prompt_rows = 0;  // logits rows per step: see Sequence::next_prompt_row
    int max_context = 0;      // prompt and generated tokens of one sequence
    int num_axes = 1;         // axes of positions
    SchedulingPolicy policy = SchedulingPolicy::kThroughput;
    double latency_target_ms = 50;  // see engine/chunk_pace.h
    int pass_rows = 0;
    OnFull on_full = OnFull::kPreempt;
    Preemption preemption = Preemption::kRecompute;
    // Decodes that begin with the same page are adjacent (engine/shared_pages.h).
    bool group_decodes = false;
  };
  using Costs = SwapCosts;
  using Stats = Preempter::Stats;

  // `reuse` may be null. `host_pages` may be null; then nothing is swapped. `sources` may be null
  // if no sequence has patches. All must outlive the scheduler.
  Scheduler(const Limits& limits, BlockPool& pool, KvReuse* reuse, BlockPool* host_pages = nullptr,
            EncoderCache* sources = nullptr);

  // Adds a sequence, which waits. kContextExceeded unless the prompt leaves room for a token in the
  // context; kResourceExhausted if it does not fit the pool.
  Status Add(std::unique_ptr<Sequence> seq);

  // Starts `child` with the leading tokens that it shares with the running sequence `parent` and
  // that are computed; the child's last token is always computed. Both share the pages; a sequence
  // that writes to a shared page first gets a copy of it. The child ranks directly after its
  // parent. If `parent` does not run, or max_seqs or the pages do not suffice, the child waits like
  // any other sequence.
  Status Fork(int64_t parent, std::unique_ptr<Sequence> child);

  struct Step {
    std::vector<PageMove> moves;  // execute before the plan, even if that is empty
    StepPlan plan;
    std::vector<const Sequence*> out_of_pages;  // cannot continue; the caller must finish them
    bool must_not_run_ahead = false;            // see Schedule
  };
  // Makes the next plan; its sequences count as advanced from here on. `ahead`: the previous plan
  // is not committed yet (asynchronous scheduling, one step ahead). Then a sequence with pending
  // tokens can only continue decoding, since these tokens are unknown, and no sequence is
  // preempted. If a preemption or a slide is needed, must_not_run_ahead is set: do not schedule the
  // next step ahead.
  Step Schedule(bool ahead = false);

  // Call once the plan, or what is left of it, is launched. A sequence that ends earlier adds no
  // pages to the prefix cache: the K/V of this step and the page copies they need do not exist yet.
  void Launched(const StepPlan& plan) {
    queue_.ForSequences(plan, [](Sequence& seq, const auto&) { seq.is_launched = true; });
  }

  // The result of a sample of a plan.
  struct Token {
    int32_t id = 0;
  };
  // The logits are not finite: the sequence is reset to the start of the entry.
  struct Failed {};
  // The sequence is paused: it is not scheduled until Append. It keeps its pages unless another
  // sequence needs them; then they are computed again.
  struct Undecided {};
  using Outcome = std::variant<Token, Failed, Undecided>;
  // Call after the plan ran, in the order in which plans were scheduled. `outcomes`: one per
  // element of plan.samples. Entries of sequences that have ended are skipped.
  void Commit(const StepPlan& plan, std::span<const Outcome> outcomes);
  // Takes a plan that the caller no longer needs; later plans reuse its memory.
  void Recycle(StepPlan plan) { maker_.Recycle(std::move(plan)); }
  // Appends the next token of a paused sequence.
  void Append(int64_t id, int32_t token);
  // Removes a waiting, running or swapped-out sequence and releases its pages. Others may reuse
  // what it computed, unless `reusable` is false or a plan that contains the sequence was not
  // launched.
  std::unique_ptr<Sequence> Finish(int64_t id, bool reusable = true);
  // Preempts a running sequence: it waits again. All plans must be committed.
  void Preempt(int64_t id, Preemption how);

  // Records the time that the plan took.
  void Observe(const StepPlan& plan, double milliseconds) {
    const int decodes = plan.num_decode_tokens(), prompts = plan.num_tokens() - decodes;
    if (decodes > 0 && prompts > 0) pace_.Observe(prompts, milliseconds);
  }
  void set_costs(const Costs& costs) { preempter_.set_costs(costs); }
  const Costs& costs() const { return preempter_.costs(); }
  const Stats& stats() const { return preempter_.stats(); }
  const Limits& limits() const { return limits_; }  // as adjusted for the policy
  int window() const;  // OnFull::kSlide: a sequence with more tokens than this slides
  // Null if the sequence has ended.
  const Sequence* Find(int64_t id) const { return queue_.Find(id); }
  bool HasWork() const { return !queue_.empty(); }
  int num_running() const { return queue_.num_running(); }
  int num_waiting() const { return queue_.num_waiting(); }

 private:
  bool HasRoomForSeqs(int count) const {
    return queue_.num_reserved_seqs() + count <= limits_.max_seqs;
  }
  Status Check(Sequence& seq) const;
  bool MakeRoom(Sequence& seq, int num_tokens, bool ahead, Step* step);
  StepBudget PlanRunning(bool ahead, Step* step);
  bool IsFirstBlocked() const;
  void Admit(Step* step, StepBudget budget);
  bool TryAdmit(Sequence& seq);
  void PreemptLast() { preempter_.Preempt(*queue_.running().back(), limits_.preemption); }

  Limits limits_;
  ChunkPace pace_;
  SequencePages pages_;
  SequenceQueue queue_;
  PlanMaker maker_;
  Preempter preempter_;
  int64_t num_added_ = 0;
  int64_t num_forked_ = 0;
  std::vector<int64_t> ended_;  // ended sequences that no plan has listed yet
};

}  // namespace kuiper
