// Decides which tokens of which sequences the next step computes: first come, first served; decodes
// first, then prompt chunks within the token budget. Pure host logic without tensors. A sequence is
// admitted only when the pages it may grow to can be promised, so a running batch never runs out;
// only a sequence that runs alone may want more than the pool has, and it ends with kContext.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "kuiper/engine/sequence.h"
#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/reuse.h"

namespace kuiper {

// The error of a prompt that does not fit the context.
Status ContextExceeded(int num_tokens, int max_context);

class Scheduler {
 public:
  struct Limits {
    int max_seqs = 1;
    int max_step_tokens = 512;
    int max_context = 0;  // prompt and generated tokens of one sequence
  };

  // `reuse` may be null; both must outlive the scheduler.
  Scheduler(const Limits& limits, BlockPool& pool, KvReuse* reuse);

  // Checks that the prompt leaves room for a token in the context and fits the pool.
  Status Add(std::unique_ptr<Sequence> seq);

  struct Step {
    StepPlan plan;
    std::vector<Sequence*> out_of_pages;  // cannot go on: the caller finishes them
  };
  // The sequences of the plan count as advanced from here on. The next step may be scheduled before
  // this one is committed (the engine runs one step ahead): then a sequence with pending tokens can
  // only go on decoding, since nobody can tell yet what they are.
  Step Schedule();
  // After the plan ran; plans are committed in the order they were scheduled. `sampled` has one
  // token per entry that samples, in order; -1 for an entry that failed, which goes back to where
  // it was.
  void Commit(const StepPlan& plan, const std::vector<int32_t>& sampled);
  // Removes a sequence, waiting or running, and releases its pages. What it computed may be reused
  // by others unless `reusable` is false.
  std::unique_ptr<Sequence> Finish(int64_t id, bool reusable = true);

  Sequence* Find(int64_t id);
  bool HasWork() const { return !waiting_.empty() || !running_.empty(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }

 private:
  int PagesFor(int num_tokens) const;
  bool GrowTo(Sequence& seq, int num_tokens);
  bool TryAdmit(Sequence& seq);
  void AddEntry(Sequence& seq, int num_tokens, Step* step);
  static void Advance(StepPlan* plan);

  Limits limits_;
  BlockPool& pool_;
  KvReuse* reuse_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of admission
  // Running sequences only take what they were promised, so a refused admission cannot succeed
  // before one of them ends.
  bool first_must_wait_ = false;
};

}  // namespace kuiper
