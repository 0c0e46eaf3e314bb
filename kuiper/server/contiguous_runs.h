// Requests that run alone on a contiguous KV cache, each on one made for it (see
// Engine::ContiguousBeside), one after the other, in turns with the steps of the engine. On the
// engine's thread.
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
  // Asked within Step, while pictures of a run are encoded.
  using IsWanted = std::function<bool(int64_t ticket)>;

  // `engine` must outlive the runs.
  ContiguousRuns(Engine& engine, IsWanted is_wanted)
      : engine_(engine), is_wanted_(std::move(is_wanted)) {}

  // The request, of one sample, is told as answer `choice` of the ticket.
  void Add(int64_t ticket, int choice, Request request);
  // Ends the ticket's runs; nothing more is told of them.
  void End(int64_t ticket);
  bool empty() const { return runs_.empty(); }
  // One step of the oldest one.
  void Step(std::vector<AnswerEvent>* events);

 private:
  struct Run {
    int64_t ticket = 0;
    int choice = 0;
    Request request;                 // until it has begun
    std::unique_ptr<Engine> engine;  // null: it has not begun
  };
  Status Begin(Run& run);
  // Whether the engine and the run are within the engine's memory plan.
  Status CheckMemory(const Run& run) const;

  Engine& engine_;
  const IsWanted is_wanted_;
  std::deque<Run> runs_;
};

}  // namespace kuiper
