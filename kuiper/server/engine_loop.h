// The thread of the engine: what others ask of it comes through a mailbox, and what the engine did
// in a step is handed over at once. It never waits for anybody but for work. Knows no HTTP.
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

struct EngineNews {
  std::vector<AnswerEvent> events;
  KvStats kv;
  int64_t num_steps = 0;  // since the start
  std::chrono::steady_clock::time_point handed_over;
};

class EngineLoop {
 public:
  // Called on the engine's thread; must not wait.
  using Deliver = std::function<void(EngineNews)>;

  // `engine` must outlive the loop. After `release_after` without work, unless it is zero, the
  // prefix cache is emptied and the memory of the KV cache is given back.
  EngineLoop(Engine& engine, Deliver deliver, std::chrono::milliseconds release_after);

  // Runs on the calling thread until Stop.
  void Run();

  // Any thread. The answers to `requests` are told under `ticket`, a number that was not used
  // before: their events, or one that says why there will be none.
  void Submit(int64_t ticket, std::vector<Request> requests);
  // The same for a request of one sample that runs without pages, as answer `choice` of the ticket,
  // which may have others.
  void SubmitContiguous(int64_t ticket, int choice, Request request);
  // Nothing more is told about the ticket.
  void Abort(int64_t ticket);
  // `f` is called on the engine's thread, between steps.
  void Call(std::function<void(Engine&)> f);
  void Stop();

  // On the engine's thread, within a step: whether somebody still waits for the request, also where
  // the letter that says so was not read yet.
  bool IsWanted(int64_t request);
  // On the engine's thread: whose request this is; 0: nobody's who waits for it.
  int64_t TicketOf(int64_t request) const {
    const auto it = origins_.find(request);
    return it == origins_.end() ? 0 : it->second.ticket;
  }

 private:
  // The requests of a ticket that have not ended.
  struct Origin {
    int64_t ticket = 0;
    int first_choice = 0;
    int num_running = 0;
    bool is_wanted = true;
  };

  void Post(std::function<void()> letter);
  bool HasWork() const { return engine_.HasWork() || !contiguous_.empty(); }
  // Waits for letters, or for none while there is work; false: Stop was called.
  bool TakeMail(std::vector<std::function<void()>>* mail);
  void Add(int64_t ticket, std::vector<Request>& requests);
  void EndTicket(int64_t ticket);
  bool IsTicketWanted(int64_t ticket);
  void Step();

  Engine& engine_;
  ContiguousRuns contiguous_;
  const Deliver deliver_;
  const std::chrono::milliseconds release_after_;
  std::map<int64_t, Origin> origins_;  // by the engine's number of the request
  std::vector<AnswerEvent> events_;    // to be handed over
  int64_t num_steps_ = 0;
  Clock::time_point last_work_ = Clock::now();
  bool is_released_ = false;  // there was no work since memory was given back

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> mail_;
  std::set<int64_t> left_;  // tickets that a letter in the mail will end
  bool stopped_ = false;
};

}  // namespace kuiper
