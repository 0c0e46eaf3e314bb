#include "kuiper/engine/engine.h"

#include <algorithm>
#include <utility>

#include "kuiper/engine/engine_state.h"

namespace kuiper {

std::unique_ptr<Sequence> Engine::State::MakeSequence(const Request& request, int64_t id,
                                                      int64_t key) {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  seq->request = key;
  seq->tokens = request.prompt;
  seq->num_prompt = static_cast<int>(request.prompt.size());
  seq->max_new_tokens = request.max_new_tokens;
  seq->priority = request.priority;
  seq->sampling = request.sampling;
  return seq;
}

void Engine::State::ForkSamples(int64_t id) {
  for (int64_t sample : std::exchange(active.at(id).unforked, {})) {
    const auto it = active.find(sample);
    if (it == active.end()) continue;  // aborted
    const Status forked = scheduler->Fork(id, MakeSequence(it->second.request, sample, sample));
    KU_CHECK(forked.ok(), "sample 0 has the same prompt and was accepted");
  }
}

Engine::Engine(std::unique_ptr<State> state) : s_(std::move(state)) {}
Engine::~Engine() = default;

StatusOr<int64_t> Engine::Add(Request request) {
  KU_RETURN_IF_ERROR(CheckRequest(request, s_->model->config().decoder.vocab));
  KU_RETURN_IF_ERROR(s_->CheckBeamWidth(request));
  const int64_t id = s_->next_id;
  KU_RETURN_IF_ERROR(s_->scheduler->Add(s_->MakeSequence(request, id, id)));
  const bool is_beam_search = request.beam_width > 1;
  for (int sample = 0; sample < (is_beam_search ? 1 : request.num_samples); ++sample) {
    ActiveRequest& a =
        s_->active.try_emplace(id + sample, request, s_->tokenizer.get()).first->second;
    a.id = id;
    a.sample = sample;
    a.request.sampling.seed += sample;
    if (sample > 0) s_->active.at(id).unforked.push_back(id + sample);
    if (is_beam_search) a.beams = s_->StartBeams(request, id);
  }
  s_->next_id += request.num_samples;
  return id;
}

void Engine::Abort(int64_t request, int sample) {
  for (auto& [unused, a] : s_->active) {
    if (a.id != request) continue;
    if (sample < 0 || a.sample == sample || a.beams != nullptr) a.aborted = true;
  }
}

bool Engine::HasWork() const {
  return s_->scheduler->HasWork();
}

std::vector<TokenEvent> Engine::Step() {
  std::vector<TokenEvent> events;
  s_->FinishAborted(&events);
  std::erase_if(s_->in_flight, [this](const StepInFlight& step) {
    return std::none_of(step.plan.entries.begin(), step.plan.entries.end(),
                        [this](const auto& entry) { return s_->IsAlive(entry); });
  });
  if (s_->in_flight.empty()) s_->LaunchNext(&events);
  if (s_->in_flight.empty()) return events;
  if (s_->CanRunAhead()) s_->LaunchNext(&events);
  s_->CollectOldest(&events);
  return events;
}

Completion Engine::Take(int64_t request, int sample) {
  const auto it = s_->finished.find(request + sample);
  KU_CHECK(it != s_->finished.end(), "request is not finished or was taken before");
  Completion completion = std::move(it->second);
  s_->finished.erase(it);
  return completion;
}

StatusOr<Completion> Engine::Generate(Request request,
                                      const std::function<bool(const TokenEvent&)>& on_event) {
  KU_CHECK(!HasWork(), "Generate runs alone");
  if (request.num_samples > 1) {
    return Status(StatusCode::kInvalidArgument, "Generate gives one answer, not num_samples",
                  "use Add and Step");
  }
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
  const int num_tokens = static_cast<int>(prompt.size());
  const int page_size = s_->pool->page_size();
  if (num_tokens > s_->config.max_context) {
    return ContextExceeded(num_tokens, s_->config.max_context);
  }
  const int num_pages = (num_tokens + page_size - 1) / page_size;
  if (s_->reuse != nullptr) s_->reuse->Evict(num_pages - s_->pool->num_free());
  std::vector<int32_t> pages;
  if (!s_->pool->Allocate(num_pages, &pages)) {
    return Status(StatusCode::kResourceExhausted, "the KV cache has too few blocks for the prompt");
  }
  Status grown = s_->GrowStorage(s_->pool->end());
  for (int begin = 0; grown.ok() && begin < num_tokens;) {
    constexpr int64_t kNoRequest = 0;
    const int count = std::min(s_->config.max_num_batched_tokens, num_tokens - begin);
    StepPlan plan;
    StepPlan::Entry& entry = plan.Open(kNoRequest, begin);
    entry.num_kept_pages = begin == 0 ? 0 : num_pages;
    if (begin == 0) plan.pages = pages;
    for (int row = 0; row < count; ++row) {
      plan.tokens.push_back(TokenRef::Known(prompt[begin + row]));
      plan.positions.push_back(begin + row);
      plan.logits_rows.push_back(row);
    }
    plan.Close();
    s_->runner->Take(s_->runner->Launch(plan));
    for (int row = 0; row < count; ++row) on_row(begin + row, s_->runner->HostLogits(row));
    begin += count;
  }
  s_->pool->Release(pages);
  return grown;
}

void Engine::ClearPrefixCache() {
  if (s_->reuse != nullptr) s_->reuse->Clear();
}

void Engine::ReleaseUnusedMemory() {
  s_->runner->ShrinkTo(s_->pool->end());
  const KvCache& kv = s_->runner->kv();
  const size_t usable = kv.bytes() / kv.shape().page_bytes();
  s_->touched_end = static_cast<int>(std::min<size_t>(s_->touched_end, usable));
}

}  // namespace kuiper
