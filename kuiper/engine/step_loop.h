// The steps of an engine: schedules one, launches it, takes its tokens and hands them to whatever
// answers each request. It knows neither text nor how a request is answered.
//
// The host may launch a step before it has the tokens of the one before it (run-ahead); the device
// fills in what the host does not know then. Tokens are taken, and requests end, in the order of
// the steps. A request whose end was not foreseen has one token too many in flight: its entry in
// that step is passed over.
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

  // See Engine::Step; the events are left with the requests.
  void Step();

 private:
  // A step whose tokens were not taken yet.
  struct InFlight {
    StepPlan plan;
    int flight = 0;  // of the runner
    bool ahead = false;
    Clock::time_point launch_time;
  };
  using Outcomes = std::vector<Scheduler::Outcome>;  // of StepPlan::samples

  bool IsAlive(const StepPlan::Entry& entry) const;
  // Calls f(Answering&, const Sequence&) unless the sequence has ended.
  template <typename F>
  void Ask(const StepPlan::Entry& entry, const F& f);

  // Schedules and launches a step; requests that cannot go on end first.
  void LaunchNext();
  // A plan that is not launched: the next one tells what it would have told.
  void TakeBackUntold(StepPlan plan);
  // Hands the hidden rows of the plan to who wants them, all layers of each.
  int Launch(StepPlan& plan);
  // Takes the entries of these sequences, and of all that have ended, out of the plan.
  void TakeOut(const std::map<int64_t, Status>& errors, StepPlan* plan);
  // Takes the sequences out that have pages for which there was no memory, and ends them, `ahead`
  // when the tokens in flight are handed out: one of those may be the last one. Nothing if there
  // was.
  void EndWithoutMemory(const Status& prepared, bool ahead, StepPlan* plan);
  // Ends the sequences for which the plan reads rows of pictures that could not be made, and those
  // that were aborted meanwhile, and takes their entries out of the plan.
  void EndWithoutRows(const std::map<int64_t, Status>& failed_sources, StepPlan* plan);
  void EndOutOfPages(const std::vector<const Sequence*>& seqs);
  // Whether the next step can do without knowing the tokens of the one in flight.
  bool CanRunAhead();
  // Waits for the oldest step in flight and hands out its tokens.
  void CollectOldest();
  // Ends those of the sequences that live, in the order of their requests.
  void EndAll(const std::map<int64_t, Status>& errors);
  // Hands out the rows of logits of prompts.
  void TellPromptLogits(const StepPlan& plan);
  Outcomes Choose(const StepPlan& plan, const StepResult& result);
  // The error of the sequences that failed.
  Status CheckFinite(const StepPlan& plan, const Outcomes& outcomes);
  void HandOut(const StepPlan& plan, const Outcomes& outcomes, const Status& not_finite);
  void LaunchAgain();
  void RecordSpeed(const InFlight& step);

  Scheduler& scheduler_;
  KvStorage& storage_;
  PictureStore* pictures_;
  ModelRunner& runner_;
  RequestTable& requests_;
  const bool run_ahead_;
  const OnEncoding on_encoding_;
  bool must_settle_ = false;                  // someone waits for the tokens in flight to be known
  std::map<int64_t, Status> without_memory_;  // sequences that end with the tokens in flight
  std::vector<int64_t> untold_;               // sequences that ended, which no plan has told yet
  std::deque<InFlight> in_flight_;            // oldest first, at most kMaxStepsInFlight
  Clock::time_point last_taken_;              // when the tokens of the step before were there
};

}  // namespace kuiper
