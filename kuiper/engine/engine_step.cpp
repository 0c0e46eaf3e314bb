// A step of the engine: schedule, launch, take the tokens, tell the callers.
//
// The host may launch a step before it has the tokens of the one before it (run-ahead); what it
// does not know then is filled in on the device. Tokens are taken, and requests end, in the order
// of the steps. A request whose end was not foreseen has one token too many in flight: its entry in
// that step is dropped.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "kuiper/engine/engine_state.h"
#include "kuiper/engine/logprobs.h"

namespace kuiper {
bool Engine::State::EndsAnswer(const Request& request, int32_t token) const {
  const std::vector<int32_t>& eos = model->eos();
  return !request.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end();
}

FinishReason Engine::State::LimitReached(const ActiveRequest& a, int num_generated) const {
  if (num_generated >= a.request.max_new_tokens) return FinishReason::kLength;
  const int num_tokens = static_cast<int>(a.request.prompt.size()) + num_generated;
  const bool is_full = num_tokens >= config.max_context && config.on_full != OnFull::kSlide;
  return is_full ? FinishReason::kContext : FinishReason::kNone;
}

void Engine::State::RecordTouched(const Sequence& seq) {
  if (config.paged || seq.pages.empty()) return;
  int& most = touched_rows.at(seq.pages[0]);
  most = std::max(most, seq.num_computed);
}

AnswerStream::Delta Engine::State::EndText(ActiveRequest* active, FinishReason reason) const {
  AnswerStream::Delta rest = active->stream.Finish();
  Completion& c = active->completion;
  c.text += rest.text;
  c.reasoning += rest.reasoning;
  c.finish = reason;
  c.prompt_tokens = static_cast<int>(active->request.prompt.size());
  c.has_reasoning = active->stream.has_reasoning();
  c.inside_thinking = active->stream.inside_thinking();
  c.reasoning_tokens = active->stream.reasoning_tokens();
  return rest;
}

AnswerStream::Delta Engine::State::PushToken(ActiveRequest* active, int32_t token,
                                             bool ends) const {
  active->completion.tokens.push_back(token);
  if (ends) return {};
  AnswerStream::Delta delta = active->stream.Push(token);
  active->completion.text += delta.text;
  active->completion.reasoning += delta.reasoning;
  return delta;
}

void Engine::State::Finish(int64_t id, FinishReason reason, Status error, TokenEvent* event) {
  ActiveRequest& a = active.at(id);
  const AnswerStream::Delta rest = EndText(&a, reason);
  event->request = a.id;
  event->sample = a.sample;
  event->text += rest.text;
  event->reasoning += rest.reasoning;
  event->finish = reason;

  a.completion.error = std::move(error);
  const auto seq = FinishSequence(id, reason != FinishReason::kError);
  if (seq != nullptr) {  // a sample that was not forked yet has none
    a.completion.kv_pages = static_cast<int>(seq->pages.size());
    a.completion.cached_tokens = seq->num_cached;
    a.completion.dropped_tokens = seq->num_dropped;
  }
  ForkSamples(id);
  finished.emplace(id, std::move(a.completion));
  active.erase(id);
}

std::unique_ptr<Sequence> Engine::State::FinishSequence(int64_t id, bool reusable) {
  std::unique_ptr<Sequence> seq = scheduler->Finish(id, reusable);
  if (seq != nullptr) last_table = seq->pages;
  return seq;
}

void Engine::State::End(int64_t id, FinishReason reason, const Status& error,
                        std::vector<TokenEvent>* events) {
  if (active.at(id).beams != nullptr) {
    EndBeams(id, reason, error, events);
  } else {
    Finish(id, reason, error, &events->emplace_back());
  }
}

void Engine::State::FinishAborted(std::vector<TokenEvent>* events) {
  std::vector<int64_t> ids;
  for (const auto& [id, a] : active) {
    if (a.aborted) ids.push_back(id);
  }
  for (int64_t id : ids) End(id, FinishReason::kInterrupt, OkStatus(), events);
}

void Engine::State::FinishOutOfPages(const std::vector<const Sequence*>& seqs,
                                     std::vector<TokenEvent>* events) {
  for (const Sequence* seq : seqs) {
    const std::string total = std::to_string(pool->num_pages());
    const Status full(StatusCode::kResourceExhausted,
                      "KV cache is full (" + std::to_string(pool->num_used()) + "/" + total +
                          " blocks, " + std::to_string(seq->num_computed) + " tokens) after " +
                          std::to_string(seq->num_generated()) + " tokens",
                      "raise --num-blocks or --kv-cache-memory");
    End(seq->request, FinishReason::kContext, full, events);
  }
}

void Engine::State::RecordLogits(ActiveRequest& a, int output, int32_t token) {
  if (!a.request.keep_logits && a.request.num_logprobs == 0) return;
  const int vocab = model->config().decoder.vocab;
  const float* row = runner->HostLogits(output);
  if (a.request.keep_logits) {
    a.completion.logits.insert(a.completion.logits.end(), row, row + vocab);
  }
  if (a.request.num_logprobs > 0) {
    a.completion.logprobs.push_back(
        LogprobsOf({row, static_cast<size_t>(vocab)}, token, a.request.num_logprobs));
  }
}

TokenEvent Engine::State::OnToken(const Sequence& seq, int32_t token) {
  ActiveRequest& a = active.at(seq.request);
  TokenEvent event;
  event.request = a.id;
  event.sample = a.sample;
  event.token = token;
  ForkSamples(seq.id);
  if (a.completion.tokens.empty()) {
    a.first_token = Clock::now();
    a.completion.prefill_ms = MillisecondsSince(a.first_step);
  }
  a.completion.decode_ms = MillisecondsSince(a.first_token);
  const bool ends = EndsAnswer(a.request, token);
  AnswerStream::Delta delta = PushToken(&a, token, ends);
  if (ends) {
    Finish(seq.id, FinishReason::kStop, OkStatus(), &event);
    return event;
  }
  event.text = std::move(delta.text);
  event.reasoning = std::move(delta.reasoning);
  const FinishReason reason = delta.stopped
                                  ? FinishReason::kStopString
                                  : LimitReached(a, static_cast<int>(a.completion.tokens.size()));
  if (reason != FinishReason::kNone) Finish(seq.id, reason, OkStatus(), &event);
  return event;
}

Status Engine::State::GrowStorage(int end) {
  KU_RETURN_IF_ERROR(runner->EnsurePages(end));
  touched_end = std::max(touched_end, end);
  return OkStatus();
}

Status Engine::State::PrepareStorage(const Scheduler::Step& step) {
  // Whoever is preempted or ends here has given pages back that moves of this step still read.
  int end = pool->end();
  for (const PageMove& move : step.moves) end = std::max(end, move.device_page + 1);
  const Status grown = GrowStorage(end);
  if (swap == nullptr) return grown;
  if (grown.ok()) {
    swap->Run(step.moves);
    return grown;
  }
  for (const PageMove& move : step.moves) {  // what would come back ends with this error
    if (move.to_host) swap->Run({&move, 1});
  }
  return grown;
}

void Engine::State::RecordPromptSpeed(const StepInFlight& step) {
  constexpr int kEnoughTokens = 16;
  if (step.ahead || step.plan.num_tokens() < kEnoughTokens) return;
  Scheduler::Costs costs = scheduler->costs();
  costs.token_ms = MillisecondsSince(step.launch_time) / step.plan.num_tokens();
  scheduler->set_costs(costs);
}

void Engine::State::LaunchNext(std::vector<TokenEvent>* events) {
  const bool ahead = !in_flight.empty();
  Scheduler::Step step = scheduler->Schedule(ahead);
  FinishOutOfPages(step.out_of_pages, events);
  must_settle = step.must_settle;
  const Status prepared = PrepareStorage(step);
  if (step.plan.entries.empty()) return;
  for (const StepPlan::Entry& entry : step.plan.entries) {
    ActiveRequest& a = RequestOf(entry);
    if (a.started) continue;
    a.started = true;
    a.first_step = Clock::now();
    a.completion.queue_ms = MillisecondsSince(a.added);
  }
  StepInFlight next{.plan = std::move(step.plan), .launched = prepared, .ahead = ahead};
  if (next.launched.ok()) next.flight = runner->Launch(next.plan);
  in_flight.push_back(std::move(next));
}

bool Engine::State::CanRunAhead() const {
  if (!run_ahead || must_settle || !in_flight.back().launched.ok()) return false;
  for (const StepPlan::Entry& entry : in_flight.back().plan.entries) {
    if (!IsAlive(entry) || entry.samples.empty()) continue;
    const ActiveRequest& a = active.at(scheduler->Find(entry.sequence)->request);
    const bool reads_logits =
        a.request.keep_logits || a.request.num_logprobs > 0 || a.beams != nullptr;
    if (reads_logits || a.request.sampling.has_penalties()) return false;
    if (a.stream.ForcedToken().has_value()) return false;
    const int num_generated = static_cast<int>(a.completion.tokens.size()) + 1;
    if (LimitReached(a, num_generated) != FinishReason::kNone) return false;
  }
  return true;
}

bool Engine::State::IsAlive(const StepPlan::Entry& entry) const {
  return scheduler->Find(entry.sequence) != nullptr;
}

ActiveRequest& Engine::State::RequestOf(const StepPlan::Entry& entry) {
  return active.at(scheduler->Find(entry.sequence)->request);
}

Status Engine::State::NotFinite(const StepPlan& plan, const Sequence& failed) {
  const auto is_alive = [this](const StepPlan::Entry& entry) { return IsAlive(entry); };
  const std::optional<int> layer = runner->FirstNonFiniteLayer(plan.Only(is_alive));
  const std::string where = layer.has_value()
                                ? "layer scan: first bad layer " + std::to_string(*layer)
                                : "layer scan: all layers are finite, the output head is not";
  const int token = failed.num_generated() - failed.num_pending;
  const bool may_overflow =
      model->config().decoder.dtype == DType::kF16 || runner->kv().shape().dtype == DType::kF16;
  return Status(StatusCode::kInternal, "model produced NaN at token " + std::to_string(token) +
                                           " (" + where + ")" +
                                           (may_overflow ? "; try --dtype bf16" : ""));
}

// The layer scan overwrote what the steps behind the failed one left on the device. Their pages
// were copied already, and what was copied may have changed since.
void Engine::State::LaunchAgain() {
  for (StepInFlight& step : in_flight) {
    step.plan = step.plan.Only([this](const StepPlan::Entry& entry) { return IsAlive(entry); });
    if (step.launched.ok() && !step.plan.entries.empty()) step.flight = runner->Launch(step.plan);
    must_settle = true;  // rows have other numbers than the scheduler knows
  }
}

void Engine::State::CollectOldest(std::vector<TokenEvent>* events) {
  StepInFlight step = std::move(in_flight.front());
  in_flight.pop_front();
  const StepPlan& plan = step.plan;
  if (!step.launched.ok()) {
    std::set<int64_t> failed;
    for (const StepPlan::Entry& entry : plan.entries) {
      if (IsAlive(entry)) failed.insert(scheduler->Find(entry.sequence)->request);
    }
    for (int64_t id : failed) End(id, FinishReason::kError, step.launched, events);
    return;
  }

  const StepResult result = runner->Take(step.flight);
  if (!in_flight.empty()) Resolve(result, &in_flight.front().plan);
  RecordPromptSpeed(step);
  const Sequence* failed = nullptr;
  std::vector<Scheduler::Outcome> outcomes(plan.samples.size());
  for (const StepPlan::Entry& entry : plan.entries) {
    if (entry.samples.empty() || !IsAlive(entry)) continue;
    const int row = entry.samples.begin;
    const Sequence& seq = *scheduler->Find(entry.sequence);
    if (!result.tokens[row].has_value()) {
      failed = failed == nullptr ? &seq : failed;
      outcomes[row] = Scheduler::Failed();
      continue;
    }
    ActiveRequest& a = RequestOf(entry);
    if (a.beams != nullptr) {
      ScoreBeam(a, seq, row, Part(plan.penalties, plan.samples[row].penalties));
      outcomes[row] = Scheduler::Undecided();
      continue;
    }
    const int32_t token = a.stream.ForcedToken().value_or(*result.tokens[row]);
    RecordLogits(a, row, token);
    outcomes[row] = Scheduler::Token{token};
  }
  const Status not_finite = failed != nullptr ? NotFinite(plan, *failed) : OkStatus();
  scheduler->Commit(plan, outcomes);
  std::map<int64_t, bool> searches;  // request -> whether a beam of it failed
  for (const StepPlan::Entry& entry : plan.entries) {
    if (!IsAlive(entry)) continue;
    const Sequence& seq = *scheduler->Find(entry.sequence);
    RecordTouched(seq);
    if (entry.samples.empty()) continue;
    const Scheduler::Outcome& outcome = outcomes[entry.samples.begin];
    if (RequestOf(entry).beams != nullptr) {
      searches[seq.request] |= std::holds_alternative<Scheduler::Failed>(outcome);
    } else if (const auto* token = std::get_if<Scheduler::Token>(&outcome)) {
      events->push_back(OnToken(seq, token->id));
    } else {
      Finish(seq.id, FinishReason::kError, not_finite, &events->emplace_back());
    }
  }
  for (const auto& [id, beam_failed] : searches) {
    if (beam_failed) {
      EndBeams(id, FinishReason::kError, not_finite, events);
    } else {
      AdvanceBeams(id, events);
    }
  }
  if (!not_finite.ok()) LaunchAgain();
  scheduler->TakeBack(std::move(step.plan));
}

}  // namespace kuiper
