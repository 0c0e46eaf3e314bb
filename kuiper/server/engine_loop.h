// Runs the engine on its own thread. Other threads send messages through a queue; the results of a
// step are delivered at once. The loop waits only for work. Independent of HTTP.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kuiper/base/clock.h"
#include "kuiper/engine/engine.h"
#include "kuiper/server/answer_event.h"
#include "kuiper/server/contiguous_runs.h"

namespace kuiper {

struct EngineUpdate {
  std::vector<AnswerEvent> events;
  KvStats kv;
  int64_t num_steps = 0;  // since the server started
  std::chrono::steady_clock::time_point handed_over;
};

class EngineLoop {
 public:
  // Called on the engine's thread; must not wait.
  using Deliver = std::function<void(EngineUpdate)>;

  // `engine` must outlive the loop. After `release_after` without work, clears the prefix cache and
  // releases the KV cache's memory; 0 = never.
  EngineLoop(Engine& engine, Deliver deliver, std::chrono::milliseconds release_after);

  // Runs on the calling thread until Stop.
  void Run();

  // Any thread. Delivers the events of `requests`, or one refusal, under `ticket`: a job id that
  // must not have been used before.
  void Submit(int64_t ticket, std::vector<Request> requests);
  // Any thread. Submits a request of one sample that runs without pages, as choice `choice` of the
  // ticket. The ticket may have other choices.
  void SubmitContiguous(int64_t ticket, int choice, Request request);
  // Any thread. Cancels the ticket. Events that are already on their way may still be delivered.
  void Abort(int64_t ticket);
  // Any thread. Calls `f` on the engine thread, between steps.
  void Call(std::function<void(Engine&)> f);
  void Stop();

  // Engine thread, within a step: true if a client still waits for the request. Sees an Abort even
  // before its message is read.
  bool IsWanted(int64_t request);
  // Engine thread: returns the ticket of an engine request; 0 if it has none.
  int64_t TicketOf(int64_t request) const {
    const auto it = origins_.find(request);
    return it == origins_.end() ? 0 : it->second.ticket;
  }

 private:
  // A request that has not ended: its ticket and its choices.
  struct Origin {
    int64_t ticket = 0;
    int first_choice = 0;
    int num_running = 0;
    bool is_wanted = true;
  };

  void Post(std::function<void()> message);
  bool HasWork() const { return engine_.HasWork() || !contiguous_.empty(); }
  // Takes all messages; waits for one if there is no work. Returns false after Stop.
  bool TakeAllMessages(std::vector<std::function<void()>>* messages);
  void Add(int64_t ticket, std::vector<Request>& requests);
  void EndTicket(int64_t ticket);
  bool IsTicketWanted(int64_t ticket);
  void Step();

  Engine& engine_;
  ContiguousRuns contiguous_;
  const Deliver deliver_;
  const std::chrono::milliseconds release_after_;
  std::map<int64_t, Origin> origins_;  // by the engine's request id
  std::vector<AnswerEvent> events_;    // not yet delivered
  int64_t num_steps_ = 0;
  Clock::time_point last_work_ = Clock::now();
  bool is_released_ = false;  // no step has run since memory was released

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> messages_;
  std::set<int64_t> aborted_;  // tickets with an unread Abort message
  bool stopped_ = false;
};

}  // namespace kuiper
