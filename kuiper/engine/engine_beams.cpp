// Beam search on the engine: each beam is a running sequence, and a beam that goes on twice forks.
// All beams take part in every step, so each step reads one row of logits per beam.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kuiper/engine/beam_scorer.h"
#include "kuiper/engine/engine_state.h"
#include "kuiper/engine/logprobs.h"

namespace kuiper {
namespace {

Status CheckBeams(const Request& request, const BeamOptions& options, const EngineConfig& config) {
  const bool low_latency = config.policy == SchedulingPolicy::kLatency;
  const int max_seqs =
      low_latency ? std::min(config.max_num_seqs, Scheduler::kLatencySeqs) : config.max_num_seqs;
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  if (options.width < 1) return bad("the beam width must be at least 1");
  if (options.width > max_seqs) {
    return bad("a beam width of " + std::to_string(options.width) + " needs as many sequences; " +
               std::to_string(max_seqs) + " are allowed");
  }
  if (!(std::abs(options.length_penalty) <= 100.f)) {
    return bad("the length penalty must be in [-100, 100]");
  }
  if (config.on_full == OnFull::kSlide) return bad("beams do not slide out of the context");
  if (request.sampling.temperature > 0) return bad("beam search takes no temperature");
  if (request.num_samples != 1 || !request.stop.empty() || request.reasoning_budget >= 0) {
    return bad("beam search takes no samples, no stop strings and no reasoning budget");
  }
  if (request.keep_logits || request.num_logprobs > 0) {
    return bad("beam search keeps neither logits nor log probabilities");
  }
  return OkStatus();
}

}  // namespace

// One search from its first step to its last.
class Engine::State::BeamRun {
 public:
  BeamRun(State& state, Request request, const BeamOptions& options)
      : s_(state),
        active_(std::move(request), nullptr),
        scorer_(options.width, options.length_penalty,
                active_.request.ignore_eos ? 0 : static_cast<int>(s_.model->eos().size())) {}

  Status Begin() {
    ids_ = {s_.next_id++};
    return s_.scheduler->Add(MakeSequence(request(), ids_[0]));
  }

  // Computes one step. The search advances when the prompt is complete.
  Status Step() {
    const Scheduler::Step step = s_.scheduler->Schedule();
    const StepPlan& plan = step.plan;
    KU_CHECK(!plan.entries.empty(), "a search has the pages it needs");
    KU_RETURN_IF_ERROR(s_.PrepareStorage(step));
    std::vector<int32_t> tokens = s_.runner->Take(s_.runner->Launch(plan));
    if (tokens.empty()) {
      s_.scheduler->Commit(plan, tokens);
      return OkStatus();
    }
    KU_CHECK(tokens.size() == ids_.size(), "all beams take part in every step");
    if (prefill_ms_ == 0) {
      prefill_ms_ = MillisecondsSince(begin_);
      num_cached_ = s_.scheduler->Find(ids_[0])->num_cached;
    }
    std::vector<std::vector<std::pair<int32_t, float>>> likely(ids_.size());
    for (size_t output = 0; output < tokens.size(); ++output) {
      if (tokens[output] < 0) return s_.NotFinite(plan, *plan.entries[output].seq);
      const Sequence& seq = *plan.entries[output].seq;
      const size_t vocab = s_.model->config().decoder.vocab;
      std::vector<float> row = LogSoftmax({s_.runner->HostLogits(static_cast<int>(output)), vocab});
      Penalise(request().sampling, seq.counts, &row);
      row.resize(s_.runner->vocab_limit());
      const int count = std::min(scorer_.num_candidates(), static_cast<int>(row.size()));
      likely[BeamOf(seq)] = MostLikely(row, count);
    }
    scorer_.Advance(likely,
                    [&](int, int32_t token) { return !request().ignore_eos && s_.IsEos(token); });
    GoOn(plan, std::move(tokens));
    return OkStatus();
  }

  bool done() const {
    if (scorer_.done()) return true;
    return LimitOfBeams() != FinishReason::kNone;
  }

  std::vector<Completion> End(bool interrupted) {
    std::vector<Completion> completions;
    const FinishReason reason = interrupted ? FinishReason::kInterrupt : LimitOfBeams();
    std::vector<BeamScorer::Answer> answers = scorer_.Answers();
    if (answers.empty()) answers.emplace_back();  // interrupted before the first token
    for (const BeamScorer::Answer& answer : answers) {
      ActiveRequest a(request(), s_.tokenizer.get());
      for (size_t i = 0; i < answer.tokens.size(); ++i) {
        s_.PushToken(&a, answer.tokens[i], answer.ended && i + 1 == answer.tokens.size());
      }
      s_.EndText(&a, answer.ended ? FinishReason::kStop : reason);
      a.completion.score = answer.score;
      a.completion.cached_tokens = num_cached_;
      a.completion.prefill_ms = prefill_ms_;
      a.completion.decode_ms = MillisecondsSince(begin_) - prefill_ms_;
      completions.push_back(std::move(a.completion));
    }
    return completions;
  }

  void Release(bool reusable) {
    for (int64_t id : ids_) s_.scheduler->Finish(id, reusable);
  }

 private:
  const Request& request() const { return active_.request; }

  FinishReason LimitOfBeams() const {
    if (scorer_.beams().empty()) return FinishReason::kNone;
    return s_.LimitReached(active_, static_cast<int>(scorer_.beams().front().tokens.size()));
  }

  size_t BeamOf(const Sequence& seq) const {
    return std::find(ids_.begin(), ids_.end(), seq.id) - ids_.begin();
  }

  // The first child of a beam goes on in its sequence, further ones fork from it, and beams without
  // a child end.
  void GoOn(const StepPlan& plan, std::vector<int32_t> tokens) {
    const std::vector<BeamScorer::Beam>& beams = scorer_.beams();
    std::vector<int64_t> next(beams.size(), -1);
    std::vector<bool> has_child(ids_.size(), false);
    for (size_t i = 0; i < beams.size(); ++i) {
      if (has_child[beams[i].parent]) continue;
      has_child[beams[i].parent] = true;
      next[i] = ids_[beams[i].parent];
    }
    for (size_t output = 0; output < tokens.size(); ++output) {
      const auto child = std::find(next.begin(), next.end(), plan.entries[output].seq->id);
      if (child != next.end()) tokens[output] = beams[child - next.begin()].tokens.back();
    }
    s_.scheduler->Commit(plan, tokens);
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (!has_child[i]) s_.scheduler->Finish(ids_[i]);
    }
    for (size_t i = 0; i < beams.size(); ++i) {
      if (next[i] >= 0) continue;
      next[i] = s_.next_id++;
      auto child = MakeSequence(request(), next[i]);
      child->tokens.insert(child->tokens.end(), beams[i].tokens.begin(), beams[i].tokens.end());
      const Status forked = s_.scheduler->Fork(ids_[beams[i].parent], std::move(child));
      KU_CHECK(forked.ok(), "a beam is no longer than the request allows");
    }
    ids_ = std::move(next);
  }

  State& s_;
  ActiveRequest active_;  // for its limits
  BeamScorer scorer_;
  std::vector<int64_t> ids_;  // sequence of each beam
  Clock::time_point begin_ = Clock::now();
  double prefill_ms_ = 0;
  int num_cached_ = 0;
};

StatusOr<std::vector<Completion>> Engine::BeamSearch(Request request, const BeamOptions& options,
                                                     const std::function<bool()>& go_on) {
  KU_CHECK(!HasWork(), "a beam search runs alone");
  KU_RETURN_IF_ERROR(CheckRequest(request, s_->model->config().decoder.vocab));
  KU_RETURN_IF_ERROR(CheckBeams(request, options, s_->config));
  const int64_t page_size = s_->pool->page_size();
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t longest =
      std::min<int64_t>(s_->config.max_context, prompt + request.max_new_tokens);
  // Beams share at least the full pages of the prompt.
  const int64_t shared = prompt / page_size;
  const int64_t needed =
      shared + options.width * ((longest - 1 + page_size - 1) / page_size - shared);
  if (needed > s_->pool->num_pages()) {
    return Status(StatusCode::kResourceExhausted,
                  std::to_string(options.width) + " beams may need " + std::to_string(needed) +
                      " blocks but the KV cache has " + std::to_string(s_->pool->num_pages()),
                  "raise --num-blocks or --kv-cache-memory, or lower --max-tokens");
  }
  State::BeamRun run(*s_, std::move(request), options);
  KU_RETURN_IF_ERROR(run.Begin());
  Status status;
  bool interrupted = false;
  while (status.ok() && !interrupted && !run.done()) {
    interrupted = go_on && !go_on();
    if (!interrupted) status = run.Step();
  }
  std::vector<Completion> answers = status.ok() ? run.End(interrupted) : std::vector<Completion>();
  run.Release(status.ok());
  if (!status.ok()) return status;
  return answers;
}

}  // namespace kuiper
