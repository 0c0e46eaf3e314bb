// Runs the steps of an engine: schedules and launches a step, takes its tokens and passes them to
// the Answering object of each request. Independent of text and of how requests are answered.
//
// With asynchronous scheduling (run-ahead), the host launches a step before it has the tokens of
// the previous one; the device fills in the unknown tokens. Tokens are taken, and requests end, in
// the order of the steps. If a request ends unexpectedly, the step in flight computes one token too
// many; its entry there is skipped.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "kuiper/base/clock.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/kv_storage.h"
#include "kuiper/engine/model_runner.h"
#include "kuiper/engine/picture_store.h"
#include "kuiper/engine/request.h"
#include "kuiper/engine/request_table.h"
#include "kuiper/engine/scheduler.h"
#include "kuiper/engine/step_plan.h"

namespace kuiper {

class StepLoop {
 public:
  // `pictures` may be null, `on_encoding` empty. All others must outlive the loop.
  StepLoop(Scheduler& scheduler, KvStorage& storage, PictureStore* pictures, ModelRunner& runner,
           RequestTable& requests, bool run_ahead, OnEncoding on_encoding)
      : scheduler_(scheduler),
        storage_(storage),
        pictures_(pictures),
        runner_(runner),
        requests_(requests),
        run_ahead_(run_ahead),
        on_encoding_(std::move(on_encoding)) {}

  // See Engine::Step; the events are stored in the request table.
  void Step();

 private:
  // A launched step whose tokens were not taken yet.
  struct InFlight {
    StepPlan plan;
    int flight = 0;  // step buffer index in the runner
    bool ahead = false;
    Clock::time_point launch_time;
  };
  using Outcomes = std::vector<Scheduler::Outcome>;  // one per element of StepPlan::samples

  bool IsAlive(const StepPlan::Entry& entry) const;
  // Calls f(Answering&, const Sequence&) unless the sequence has ended.
  template <typename F>
  void Ask(const StepPlan::Entry& entry, const F& f);

  // Schedules and launches a step. Requests that cannot continue end first.
  void LaunchNext();
  // Drops a plan that is not launched. The next plan will list its ended sequences.
  void DropUnlaunched(StepPlan plan);
  // Launches the plan and delivers its hidden rows to the sequences that want them, for all layers.
  int Launch(StepPlan& plan);
  // Removes the entries of these sequences, and of all ended sequences, from the plan.
  void RemoveEntries(const std::map<int64_t, Status>& errors, StepPlan* plan);
  // If Prepare failed, removes the entries of sequences with unusable pages and ends these
  // sequences. If `ahead`, they end only after the tokens in flight are delivered, one of which may
  // be their last. Does nothing if `prepared` is ok.
  void EndWithoutMemory(const Status& prepared, bool ahead, StepPlan* plan);
  // Ends the sequences whose plan entries need picture rows that could not be computed, and aborted
  // sequences. Removes their entries from the plan.
  void EndWithoutRows(const std::map<int64_t, Status>& failed_sources, StepPlan* plan);
  void EndOutOfPages(const std::vector<const Sequence*>& seqs);
  // True if the next step can be launched without the tokens of the one in flight.
  bool CanRunAhead();
  // Waits for the oldest step in flight and delivers its tokens.
  void CollectOldest();
  // Ends those of the sequences that still exist, in the order of their requests.
  void EndAll(const std::map<int64_t, Status>& errors);
  // Delivers the logits rows of prompts.
  void DeliverPromptLogits(const StepPlan& plan);
  Outcomes Choose(const StepPlan& plan, const StepResult& result);
  // Returns the error for sequences whose logits are not finite.
  Status CheckFinite(const StepPlan& plan, const Outcomes& outcomes);
  void DeliverTokens(const StepPlan& plan, const Outcomes& outcomes, const Status& not_finite);
  void LaunchAgain();
  void RecordSpeed(const InFlight& step);

  Scheduler& scheduler_;
  KvStorage& storage_;
  PictureStore* pictures_;
  ModelRunner& runner_;
  RequestTable& requests_;
  const bool run_ahead_;
  const OnEncoding on_encoding_;
  bool must_not_run_ahead_ = false;           // the scheduler needs the tokens in flight first
  std::map<int64_t, Status> without_memory_;  // sequences to end with the tokens in flight
  std::vector<int64_t> unsent_ended_;         // ended sequences that no launched plan has listed
  std::deque<InFlight> in_flight_;            // oldest first, at most kMaxStepsInFlight
  Clock::time_point last_taken_;              // when the previous step's tokens were available
};

}  // namespace kuiper
