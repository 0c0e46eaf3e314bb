#include "kuiper/server/engine_loop.h"

#include <utility>

#include "kuiper/base/clock.h"

namespace kuiper {

EngineLoop::EngineLoop(Engine& engine, Deliver deliver, std::chrono::milliseconds release_after)
    : engine_(engine), deliver_(std::move(deliver)), release_after_(release_after) {}

void EngineLoop::Post(std::function<void()> letter) {
  {
    const std::lock_guard lock(mutex_);
    mail_.push_back(std::move(letter));
  }
  wake_.notify_one();
}

void EngineLoop::Submit(int64_t ticket, std::vector<Request> requests) {
  Post([this, ticket, requests = std::move(requests)]() mutable { Add(ticket, requests); });
}

void EngineLoop::Abort(int64_t ticket) {
  Post([this, ticket] { EndTicket(ticket); });
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

bool EngineLoop::TakeMail(std::vector<std::function<void()>>* mail) {
  const auto ready = [this] { return stopped_ || !mail_.empty(); };
  std::unique_lock lock(mutex_);
  if (!engine_.HasWork() && !ready()) {
    if (release_after_.count() > 0 && !wake_.wait_for(lock, release_after_, ready)) {
      lock.unlock();
      engine_.ReleaseUnusedMemory();
      lock.lock();
    }
    wake_.wait(lock, ready);
  }
  mail->swap(mail_);
  return !stopped_;
}

void EngineLoop::Run() {
  std::vector<std::function<void()>> mail;
  while (TakeMail(&mail)) {
    for (const auto& letter : mail) letter();
    mail.clear();
    if (engine_.HasWork()) Step();
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
      AnswerEvent event;
      event.ticket = ticket;
      event.refused = id.status();
      events_.push_back(std::move(event));
      return;
    }
    origins_[*id] = {ticket, first_choice, num_samples};
    first_choice += num_samples;
  }
}

void EngineLoop::EndTicket(int64_t ticket) {
  for (auto& [id, origin] : origins_) {
    if (origin.ticket != ticket || !std::exchange(origin.is_wanted, false)) continue;
    engine_.Abort(id);
  }
}

void EngineLoop::Step() {
  ++num_steps_;
  for (TokenEvent& event : engine_.Step()) {
    const auto origin = origins_.find(event.request);
    const bool has_ended = event.finish != FinishReason::kNone;
    AnswerEvent told;
    // It is taken even when nobody wants it: the engine keeps it until then.
    if (has_ended) told.completion = engine_.Take(event.request, event.sample).value();
    if (origin == origins_.end()) continue;
    if (origin->second.is_wanted) {
      told.ticket = origin->second.ticket;
      told.choice = origin->second.first_choice + event.sample;
      told.token = event.token;
      told.text = std::move(event.text);
      told.reasoning = std::move(event.reasoning);
      told.logprobs = std::move(event.logprobs);
      told.prompt_logprobs = std::move(event.prompt_logprobs);
      events_.push_back(std::move(told));
    }
    if (has_ended && --origin->second.num_running == 0) origins_.erase(origin);
  }
}

}  // namespace kuiper
