#include "kuiper/server/contiguous_runs.h"

#include <string>
#include <utility>

namespace kuiper {

void ContiguousRuns::Add(int64_t ticket, int choice, Request request) {
  Run run;
  run.ticket = ticket;
  run.choice = choice;
  run.request = std::move(request);
  runs_.push_back(std::move(run));
}

void ContiguousRuns::End(int64_t ticket) {
  std::erase_if(runs_, [ticket](const Run& run) { return run.ticket == ticket; });
}

Status ContiguousRuns::Begin(Run& run) {
  int64_t picture_tokens = 0;
  for (const VisionInput& image : run.request.images) picture_tokens += image.num_tokens();
  const size_t num_tokens = run.request.prompt.size() + run.request.max_new_tokens;
  const auto on_encoding = [this, ticket = run.ticket](int64_t, double) {
    return is_wanted_(ticket);
  };
  KU_ASSIGN_OR_RETURN(run.engine, engine_.MakeContiguousEngine(static_cast<int>(num_tokens),
                                                               picture_tokens, on_encoding));
  return run.engine->Add(std::move(run.request)).status();
}

Status ContiguousRuns::CheckMemory(const Run& run) const {
  const size_t used = engine_.memory_in_use() + run.engine->memory_plan().total_bytes();
  if (used <= engine_.memory_plan().budget_bytes) return OkStatus();
  return Status(StatusCode::kResourceExhausted,
                "other requests need the memory of the run without pages; try again later");
}

void ContiguousRuns::Step(std::vector<AnswerEvent>* events) {
  Run& run = runs_.front();
  const int64_t ticket = run.ticket;
  const Status can_continue = run.engine == nullptr ? Begin(run) : CheckMemory(run);
  if (!can_continue.ok()) {
    events->push_back(RefusedEvent(ticket, can_continue));
    return End(ticket);
  }
  for (TokenEvent& event : run.engine->Step()) {
    AnswerEvent answer_event = TakeAnswerEvent(*run.engine, std::move(event));
    answer_event.ticket = ticket;
    answer_event.choice = run.choice;
    events->push_back(std::move(answer_event));
  }
  if (!run.engine->HasWork()) runs_.pop_front();
}

}  // namespace kuiper
