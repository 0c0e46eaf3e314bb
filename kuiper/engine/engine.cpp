#include "kuiper/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kuiper/engine/engine_state.h"

namespace kuiper {
namespace {

Status CheckRequest(const Request& request, int vocab) {
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  const SamplingParams& p = request.sampling;
  if (request.prompt.empty()) return Status(StatusCode::kInput, "the prompt is empty");
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) {
      return bad("token id " + std::to_string(id) + " is outside the vocabulary of " +
                 std::to_string(vocab));
    }
  }
  if (request.max_new_tokens < 1) return bad("max_new_tokens must be at least 1");
  if (!(p.temperature >= 0 && std::isfinite(p.temperature))) return bad("temperature must be >= 0");
  if (!(p.top_p > 0 && p.top_p <= 1)) return bad("top_p must be in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return bad("min_p must be in [0, 1]");
  if (p.top_k < 0) return bad("top_k must be >= 0");
  // Beyond these bounds a penalised logit may overflow, which would be reported as a broken model.
  if (!(p.repetition_penalty >= 0.01f && p.repetition_penalty <= 100.f)) {
    return bad("repetition_penalty must be in [0.01, 100]");
  }
  if (!(std::abs(p.presence_penalty) <= 100.f) || !(std::abs(p.frequency_penalty) <= 100.f)) {
    return bad("presence_penalty and frequency_penalty must be in [-100, 100]");
  }
  if (std::abs(request.priority) > 100) return bad("priority must be in [-100, 100]");
  if (request.num_logprobs < 0 || request.num_logprobs > vocab) {
    return bad("num_logprobs must be between 0 and the vocabulary size");
  }
  return OkStatus();
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kInterrupt:
      return "interrupt";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

Engine::Engine(std::unique_ptr<State> state) : s_(std::move(state)) {}
Engine::~Engine() = default;

StatusOr<int64_t> Engine::Add(Request request) {
  KU_RETURN_IF_ERROR(CheckRequest(request, s_->model->config().decoder.vocab));
  auto seq = std::make_unique<Sequence>();
  seq->id = s_->next_id;
  seq->tokens = request.prompt;
  seq->num_prompt = static_cast<int>(request.prompt.size());
  seq->max_new_tokens = request.max_new_tokens;
  seq->priority = request.priority;
  seq->sampling = request.sampling;
  KU_RETURN_IF_ERROR(s_->scheduler->Add(std::move(seq)));
  s_->active.try_emplace(s_->next_id, std::move(request), s_->tokenizer.get());
  return s_->next_id++;
}

void Engine::Abort(int64_t request) {
  const auto it = s_->active.find(request);
  if (it != s_->active.end()) it->second.aborted = true;
}

bool Engine::HasWork() const {
  return s_->scheduler->HasWork();
}

std::vector<TokenEvent> Engine::Step() {
  std::vector<TokenEvent> events;
  s_->FinishAborted(&events);
  std::erase_if(s_->in_flight, [](StepInFlight& step) {
    const auto& entries = step.plan.entries;
    return std::all_of(entries.begin(), entries.end(),
                       [](const StepPlan::Entry& entry) { return entry.seq == nullptr; });
  });
  if (s_->in_flight.empty()) s_->LaunchNext(&events);
  if (s_->in_flight.empty()) return events;
  if (s_->CanRunAhead()) s_->LaunchNext(&events);
  s_->CollectOldest(&events);
  return events;
}

Completion Engine::Take(int64_t request) {
  const auto it = s_->finished.find(request);
  KU_CHECK(it != s_->finished.end(), "request is not finished or was taken before");
  Completion completion = std::move(it->second);
  s_->finished.erase(it);
  return completion;
}

StatusOr<Completion> Engine::Generate(Request request,
                                      const std::function<bool(const TokenEvent&)>& on_event) {
  KU_CHECK(!HasWork(), "Generate runs alone");
  KU_ASSIGN_OR_RETURN(const int64_t id, Add(std::move(request)));
  while (HasWork()) {
    for (const TokenEvent& event : Step()) {
      if (on_event && !on_event(event)) Abort(id);
    }
  }
  return Take(id);
}

Status Engine::Logits(const std::vector<int32_t>& prompt,
                      const std::function<void(int position, const float* logits)>& on_row) {
  KU_CHECK(s_->config.prompt_logits && !HasWork());
  Request request;
  request.prompt = prompt;
  KU_RETURN_IF_ERROR(CheckRequest(request, s_->model->config().decoder.vocab));
  Sequence seq;
  seq.tokens = prompt;
  seq.num_prompt = seq.num_tokens();
  const int page_size = s_->pool->page_size();
  const int pages = (seq.num_tokens() + page_size - 1) / page_size;
  if (seq.num_tokens() > s_->config.max_context) {
    return ContextExceeded(seq.num_tokens(), s_->config.max_context);
  }
  if (s_->reuse != nullptr) s_->reuse->Evict(pages - s_->pool->num_free());
  if (!s_->pool->Allocate(pages, &seq.pages)) {
    return Status(StatusCode::kResourceExhausted, "the KV cache has too few blocks for the prompt");
  }
  Status grown = s_->runner->EnsurePages(s_->pool->high_water());
  while (grown.ok() && seq.num_computed < seq.num_tokens()) {
    StepPlan plan;
    plan.num_tokens =
        std::min(s_->config.max_num_batched_tokens, seq.num_tokens() - seq.num_computed);
    plan.entries.push_back(
        {.seq = &seq, .begin = seq.num_computed, .num_tokens = plan.num_tokens, .all_rows = true});
    s_->runner->Take(s_->runner->Launch(plan));
    for (int i = 0; i < plan.num_tokens; ++i) {
      on_row(seq.num_computed + i, s_->runner->HostLogits(i));
    }
    seq.num_computed += plan.num_tokens;
  }
  for (int32_t page : seq.pages) s_->pool->Release(page);
  return grown;
}

void Engine::ClearPrefixCache() {
  if (s_->reuse != nullptr) s_->reuse->Clear();
}

}  // namespace kuiper
