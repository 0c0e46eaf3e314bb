#include "kuiper/server/engine_loop.h"

#include <utility>

namespace kuiper {

EngineLoop::EngineLoop(Engine& engine, Deliver deliver, std::chrono::milliseconds release_after)
    : engine_(engine),
      contiguous_(engine, [this](int64_t ticket) { return IsTicketWanted(ticket); }),
      deliver_(std::move(deliver)),
      release_after_(release_after) {}

void EngineLoop::Post(std::function<void()> message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  wake_.notify_one();
}

void EngineLoop::Submit(int64_t ticket, std::vector<Request> requests) {
  Post([this, ticket, requests = std::move(requests)]() mutable { Add(ticket, requests); });
}

void EngineLoop::SubmitContiguous(int64_t ticket, int choice, Request request) {
  Post([this, ticket, choice, request = std::move(request)]() mutable {
    contiguous_.Add(ticket, choice, std::move(request));
  });
}

void EngineLoop::Abort(int64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    aborted_.insert(ticket);
  }
  Post([this, ticket] {
    EndTicket(ticket);
    const std::lock_guard lock(mutex_);
    aborted_.erase(ticket);
  });
}

void EngineLoop::Call(std::function<void(Engine&)> f) {
  Post([this, f = std::move(f)] { f(engine_); });
}

void EngineLoop::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_one();
}

bool EngineLoop::TakeAllMessages(std::vector<std::function<void()>>* messages) {
  const auto ready = [this] { return stopped_ || !messages_.empty(); };
  std::unique_lock lock(mutex_);
  if (!HasWork() && !ready()) {
    // Call() is not work: monitoring does not delay the release of memory.
    if (release_after_.count() > 0 && !is_released_ &&
        !wake_.wait_until(lock, last_work_ + release_after_, ready)) {
      lock.unlock();
      engine_.ClearPrefixCache();
      engine_.ReleaseUnusedMemory();
      is_released_ = true;
      lock.lock();
    }
    wake_.wait(lock, ready);
  }
  messages->swap(messages_);
  return !stopped_;
}

void EngineLoop::Run() {
  std::vector<std::function<void()>> messages;
  while (TakeAllMessages(&messages)) {
    for (const auto& message : messages) message();
    messages.clear();
    if (engine_.HasWork()) Step();
    if (!contiguous_.empty()) contiguous_.Step(&events_);
    if (events_.empty()) continue;
    deliver_({std::exchange(events_, {}), engine_.kv_stats(), num_steps_, Clock::now()});
  }
}

void EngineLoop::Add(int64_t ticket, std::vector<Request>& requests) {
  int first_choice = 0;
  for (Request& request : requests) {
    const int num_samples = request.num_samples;
    const StatusOr<int64_t> id = engine_.Add(std::move(request));
    if (!id.ok()) {
      EndTicket(ticket);
      events_.push_back(RefusedEvent(ticket, id.status()));
      return;
    }
    origins_[*id] = {ticket, first_choice, num_samples};
    first_choice += num_samples;
  }
}

void EngineLoop::EndTicket(int64_t ticket) {
  contiguous_.End(ticket);
  for (auto& [id, origin] : origins_) {
    if (origin.ticket != ticket || !std::exchange(origin.is_wanted, false)) continue;
    engine_.Abort(id);
  }
}

bool EngineLoop::IsWanted(int64_t request) {
  const auto origin = origins_.find(request);
  return origin != origins_.end() && IsTicketWanted(origin->second.ticket);
}

bool EngineLoop::IsTicketWanted(int64_t ticket) {
  const std::lock_guard lock(mutex_);
  return !stopped_ && !aborted_.contains(ticket);
}

void EngineLoop::Step() {
  ++num_steps_;
  is_released_ = false;
  for (TokenEvent& event : engine_.Step()) {
    const auto origin = origins_.find(event.request);
    const bool has_ended = event.finish != FinishReason::kNone;
    const int sample = event.sample;
    // Take the completion even if the client has left: the engine keeps it until it is taken.
    AnswerEvent answer_event = TakeAnswerEvent(engine_, std::move(event));
    if (origin == origins_.end()) continue;
    if (origin->second.is_wanted) {
      answer_event.ticket = origin->second.ticket;
      answer_event.choice = origin->second.first_choice + sample;
      events_.push_back(std::move(answer_event));
    }
    if (has_ended && --origin->second.num_running == 0) origins_.erase(origin);
  }
  last_work_ = Clock::now();
}

}  // namespace kuiper
