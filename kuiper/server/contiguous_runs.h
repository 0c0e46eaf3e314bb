// Requests that run one at a time, each on its own contiguous KV cache (see
// Engine::MakeContiguousEngine). Their steps alternate with those of the main engine. Runs on the
// engine thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/server/answer_event.h"

namespace kuiper {

class ContiguousRuns {
 public:
  // Step calls it while it encodes the images of a run.
  using IsWanted = std::function<bool(int64_t ticket)>;

  // `engine` must outlive the runs.
  ContiguousRuns(Engine& engine, IsWanted is_wanted)
      : engine_(engine), is_wanted_(std::move(is_wanted)) {}

  // Adds a request of one sample; its events are those of choice `choice` of the ticket.
  void Add(int64_t ticket, int choice, Request request);
  // Ends the ticket's runs without further events.
  void End(int64_t ticket);
  bool empty() const { return runs_.empty(); }
  // Runs one step of the oldest run.
  void Step(std::vector<AnswerEvent>* events);

 private:
  struct Run {
    int64_t ticket = 0;
    int choice = 0;
    Request request;                 // moved to `engine` when the run begins
    std::unique_ptr<Engine> engine;  // null until the run begins
  };
  Status Begin(Run& run);
  // Returns OK if the engine and the run together fit the engine's memory budget.
  Status CheckMemory(const Run& run) const;

  Engine& engine_;
  const IsWanted is_wanted_;
  std::deque<Run> runs_;
};

}  // namespace kuiper
