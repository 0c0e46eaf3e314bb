// Decides which tokens of which sequences the next step computes: decodes first, then prompt chunks
// within the token budget. Pure host logic without tensors.
//
// There is one line. A sequence's place in it is its arrival, ahead by kArrivalsPerPriority for
// each step of priority: first come, first served within a priority, and nobody is overtaken
// without end. Who is first in line is admitted first, gets tokens first, and is preempted last. So
// the first one always advances, and everybody becomes the first one.
//
// OnFull::kPreempt admits what fits now. When the pool runs full, the last in line gives its pages
// back and waits again; a sequence that runs alone has the whole pool, and if it wants more it ends
// with kContext. OnFull::kStop and kSlide admit only what can be served to its end, because a full
// pool shows in the answer: that must not depend on what else runs. Who slides off pages that it
// shares may need more than it was promised; then the last in line is preempted as well.
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
#include "kuiper/engine/sequence_line.h"
#include "kuiper/engine/sequence_pages.h"
#include "kuiper/engine/step_budget.h"

namespace kuiper {

class Scheduler {
 public:
  static constexpr int kArrivalsPerPriority = 1000;
  static constexpr int kLatencySeqs = 2;  // at a time, with SchedulingPolicy::kLatency

  struct Limits {
    int max_seqs = 1;
    int max_step_tokens = 512;
    int max_prompt_rows = 0;  // of logits, in one step: see Sequence::next_prompt_row
    int max_context = 0;      // prompt and generated tokens of one sequence
    int num_axes = 1;         // of positions
    SchedulingPolicy policy = SchedulingPolicy::kThroughput;
    double latency_target_ms = 50;  // see engine/chunk_pace.h
    int pass_rows = 0;
    OnFull on_full = OnFull::kPreempt;
    Preemption preemption = Preemption::kRecompute;
    // Decodes that begin with the same page stand next to each other (engine/shared_pages.h).
    bool group_decodes = false;
  };
  using Costs = SwapCosts;
  using Stats = Preempter::Stats;

  // `reuse` may be null; so may `host_pages`, then nothing is swapped, and `sources` where no
  // sequence has patches. All must outlive the scheduler.
  Scheduler(const Limits& limits, BlockPool& pool, KvReuse* reuse, BlockPool* host_pages = nullptr,
            SourceCache* sources = nullptr);

  // Checks that the prompt leaves room for a token in the context and fits the pool.
  Status Add(std::unique_ptr<Sequence> seq);

  // Starts `child` with what the running sequence `parent` has computed of its tokens, as far as
  // they are the same; its last token is always computed. Both share the pages; whoever writes to a
  // shared page first gets a copy of it. The child stands in line right behind its parent. Without
  // a seat, without pages or when `parent` does not run, it waits like any other sequence.
  Status Fork(int64_t parent, std::unique_ptr<Sequence> child);

  struct Step {
    std::vector<PageMove> moves;  // to carry out before the plan runs, even if that is empty
    StepPlan plan;
    std::vector<const Sequence*> out_of_pages;  // cannot go on: the caller finishes them
    bool must_settle = false;                   // see Schedule
  };
  // The sequences of the plan count as advanced from here on. `ahead`: the plan before is not
  // committed yet (the engine runs one step ahead). Then a sequence with pending tokens can only go
  // on decoding, since nobody can tell yet what they are, and nobody is put back in line. Where
  // that would be needed, must_settle asks for the next step not to be scheduled ahead.
  Step Schedule(bool ahead = false);

  // The plan runs, or what is left of it. Who ends before leaves nothing to the prefix cache:
  // neither its tokens of this step nor the copies of pages that they need are there.
  void Launched(const StepPlan& plan) {
    line_.ForSequences(plan, [](Sequence& seq, const auto&) { seq.is_launched = true; });
  }

  // What became of a sample of a plan.
  struct Token {
    int32_t id = 0;
  };
  struct Failed {};     // the logits are not finite: the sequence goes back to where it was
  struct Undecided {};  // the sequence rests: it has no part in steps before Append. It keeps its
                        // pages, unless somebody needs them; then they are computed again
  using Outcome = std::variant<Token, Failed, Undecided>;
  // After the plan ran; plans are committed in the order they were scheduled. `outcomes`: of each
  // of plan.samples. Entries of sequences that ended meanwhile are passed over.
  void Commit(const StepPlan& plan, std::span<const Outcome> outcomes);
  // A plan that is done with, if the caller does not need it: the next ones use its memory.
  void TakeBack(StepPlan plan) { maker_.TakeBack(std::move(plan)); }
  // The next token of a sequence that rests.
  void Append(int64_t id, int32_t token);
  // Removes a sequence, waiting, running or swapped out, and releases its pages. What it computed
  // may be reused by others unless `reusable` is false, or a plan that has it was not launched.
  std::unique_ptr<Sequence> Finish(int64_t id, bool reusable = true);
  // Puts a running sequence back in line; not while a plan is not committed.
  void Preempt(int64_t id, Preemption how);

  // The plan took so long.
  void Observe(const StepPlan& plan, double milliseconds) {
    const int decodes = plan.num_decode_tokens(), prompts = plan.num_tokens() - decodes;
    if (decodes > 0 && prompts > 0) pace_.Observe(prompts, milliseconds);
  }
  void set_costs(const Costs& costs) { preempter_.set_costs(costs); }
  const Costs& costs() const { return preempter_.costs(); }
  const Stats& stats() const { return preempter_.stats(); }
  const Limits& limits() const { return limits_; }  // as they really are
  int window() const;  // OnFull::kSlide: more tokens than this make a sequence slide
  // Null: it ended.
  const Sequence* Find(int64_t id) const { return line_.Find(id); }
  bool HasWork() const { return !line_.empty(); }
  int num_running() const { return line_.num_running(); }
  int num_waiting() const { return line_.num_waiting(); }

 private:
  bool HasSeats(int count) const { return line_.num_seats() + count <= limits_.max_seqs; }
  Status Check(Sequence& seq) const;
  bool MakeRoom(Sequence& seq, int num_tokens, bool ahead, Step* step);
  StepBudget PlanRunning(bool ahead, Step* step);
  bool FirstIsHeldUp() const;
  void Admit(Step* step, StepBudget budget);
  bool TryAdmit(Sequence& seq);
  void PutLastBack() { preempter_.PutBack(*line_.running().back(), limits_.preemption); }

  Limits limits_;
  ChunkPace pace_;
  SequencePages pages_;
  SequenceLine line_;
  PlanMaker maker_;
  Preempter preempter_;
  int64_t num_added_ = 0;
  int64_t num_forked_ = 0;
  std::vector<int64_t> ended_;  // which no plan has told yet
};

}  // namespace kuiper
