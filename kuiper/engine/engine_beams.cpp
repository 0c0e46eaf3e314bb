// Beam search on the engine: each beam is a sequence. A beam whose logits are known rests until
// those of all beams are; then the search goes on by a token, and a beam that goes on twice forks.
// So it does not matter in which steps the beams are computed, and with whom.
#include <algorithm>
#include <set>
#include <utility>

#include "kuiper/engine/engine_state.h"
#include "kuiper/engine/logprobs.h"

namespace kuiper {

Status Engine::State::CheckBeamWidth(const Request& request) const {
  if (request.beam_width == 1) return OkStatus();
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  const int seats = config.policy == SchedulingPolicy::kLatency
                        ? std::min(config.max_num_seqs, Scheduler::kLatencySeqs)
                        : config.max_num_seqs;
  if (request.beam_width > seats) {
    return bad("a beam width of " + std::to_string(request.beam_width) +
               " needs as many sequences; " + std::to_string(seats) + " are allowed");
  }
  if (config.on_full == OnFull::kSlide) return bad("beams do not slide out of the context");
  return OkStatus();
}

std::unique_ptr<BeamSearch> Engine::State::StartBeams(const Request& request, int64_t id) const {
  const size_t num_eos = request.ignore_eos ? 0 : model->eos().size();
  const Tokenizer* text = request.stop.empty() ? nullptr : tokenizer.get();
  return std::make_unique<BeamSearch>(
      BeamSearch{.scorer = {request.beam_width, request.length_penalty, static_cast<int>(num_eos)},
                 .ids = {id},
                 .likely = {{}},
                 .streams = {AnswerStream(text, request)}});
}

void Engine::State::ScoreBeam(ActiveRequest& a, const Sequence& seq, int output,
                              std::span<const TokenCount> penalties) {
  BeamSearch& search = *a.beams;
  if (search.scorer.beams().front().tokens.empty()) {
    a.first_token = Clock::now();
    a.completion.prefill_ms = MillisecondsSince(a.first_step);
    a.completion.cached_tokens = seq.num_cached;
  }
  const auto beam = std::find(search.ids.begin(), search.ids.end(), seq.id) - search.ids.begin();
  const size_t vocab = model->config().decoder.vocab;
  std::vector<float> logprobs = LogSoftmax({runner->HostLogits(output), vocab});
  Penalise(a.request.sampling, penalties, &logprobs);
  logprobs.resize(runner->vocab_limit());
  search.likely.at(beam) = MostLikely(
      logprobs, std::min(search.scorer.num_candidates(), static_cast<int>(logprobs.size())));
}

void Engine::State::AdvanceBeams(int64_t id, std::vector<TokenEvent>* events) {
  ActiveRequest& a = active.at(id);
  BeamSearch& search = *a.beams;
  if (std::any_of(search.likely.begin(), search.likely.end(),
                  [](const auto& likely) { return likely.empty(); })) {
    return;
  }
  search.scorer.Advance(search.likely, [&](int beam, int32_t token) {
    if (EndsAnswer(a.request, token)) return true;
    AnswerStream stream = search.streams[beam];
    return stream.Push(token).stopped;
  });
  a.completion.decode_ms = MillisecondsSince(a.first_token);
  const std::vector<BeamScorer::Beam>& beams = search.scorer.beams();
  const FinishReason limit = beams.empty()
                                 ? FinishReason::kNone
                                 : LimitReached(a, static_cast<int>(beams.front().tokens.size()));
  if (search.scorer.done() || limit != FinishReason::kNone) {
    EndBeams(id, limit, OkStatus(), events);
    return;
  }
  std::vector<AnswerStream> streams;
  for (const BeamScorer::Beam& beam : beams) {
    streams.push_back(search.streams[beam.parent]);
    streams.back().Push(beam.tokens.back());
  }
  search.streams = std::move(streams);
  search.likely.assign(beams.size(), {});
  ForkBeams(a);
}

// The first child of a beam goes on in its sequence, further ones fork from it, and beams without
// a child end.
void Engine::State::ForkBeams(const ActiveRequest& a) {
  std::vector<int64_t>& ids = a.beams->ids;
  const std::vector<BeamScorer::Beam>& beams = a.beams->scorer.beams();
  std::vector<int64_t> next(beams.size());
  std::vector<bool> has_child(ids.size(), false), forks(beams.size(), false);
  for (size_t i = 0; i < beams.size(); ++i) {
    const int parent = beams[i].parent;
    forks[i] = has_child[parent];
    has_child[parent] = true;
    if (forks[i]) continue;
    next[i] = ids[parent];
    scheduler->Append(next[i], beams[i].tokens.back());
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!has_child[i]) FinishSequence(ids[i], true);
  }
  for (size_t i = 0; i < beams.size(); ++i) {
    if (!forks[i]) continue;
    next[i] = next_id++;
    auto child = MakeSequence(a.request, next[i], a.id);
    child->tokens.insert(child->tokens.end(), beams[i].tokens.begin(), beams[i].tokens.end());
    const Status forked = scheduler->Fork(ids[beams[i].parent], std::move(child));
    KU_CHECK(forked.ok(), "a beam is no longer than the request allows");
  }
  ids = std::move(next);
}

// An answer that its last token did not end gets `reason`; after an error all do.
void Engine::State::EndBeams(int64_t id, FinishReason reason, const Status& error,
                             std::vector<TokenEvent>* events) {
  auto node = active.extract(id);
  ActiveRequest& a = node.mapped();
  std::set<int32_t> pages;
  for (int64_t beam : a.beams->ids) {
    const auto seq = FinishSequence(beam, reason != FinishReason::kError);
    pages.insert(seq->pages.begin(), seq->pages.end());
  }
  a.completion.kv_pages = static_cast<int>(pages.size());
  std::vector<BeamScorer::Answer> answers = a.beams->scorer.Answers();
  answers.resize(a.request.num_samples);  // interrupted before the first token: there are none
  for (int i = 0; i < a.request.num_samples; ++i) {
    ActiveRequest answer(a.request, tokenizer.get());
    answer.completion = a.completion;
    answer.completion.score = answers[i].score;
    TokenEvent event;
    event.request = id;
    event.sample = i;
    AnswerStream::Delta delta;
    for (int32_t token : answers[i].tokens) {
      if (event.token >= 0) events->push_back(event);
      event.token = token;
      delta = PushToken(&answer, token, EndsAnswer(a.request, token));
      event.text = delta.text;
      event.reasoning = delta.reasoning;
    }
    event.finish = reason;
    if (answers[i].ended && reason != FinishReason::kError) {
      event.finish = delta.stopped ? FinishReason::kStopString : FinishReason::kStop;
    } else {
      answer.completion.error = error;
    }
    const AnswerStream::Delta rest = EndText(&answer, event.finish);
    event.text += rest.text;
    event.reasoning += rest.reasoning;
    events->push_back(std::move(event));
    finished.emplace(id + i, std::move(answer.completion));
  }
}

}  // namespace kuiper
