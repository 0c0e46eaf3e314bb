#include "kuiper/engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "kuiper/engine/logprobs.h"

namespace kuiper {

Status BeamSearch::Check(const AnswerRules& rules, const Request& request) {
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  if (request.beam_width > rules.max_seqs) {
    return bad("a beam width of " + std::to_string(request.beam_width) +
               " needs as many sequences; " + std::to_string(rules.max_seqs) + " are allowed");
  }
  if (rules.on_full == OnFull::kSlide) return bad("beams do not slide out of the context");
  return OkStatus();
}

BeamSearch::BeamSearch(const AnswerRules& rules, AnswerContext& context, int64_t id,
                       const Request& request, int64_t first)
    : rules_(rules),
      context_(context),
      id_(id),
      request_(request),
      scorer_(request.beam_width, request.length_penalty,
              static_cast<int>((request.ignore_eos ? 0 : rules.eos.size()) +
                               request.stop_token_ids.size())),
      common_(rules, request_, id, 0) {
  const Tokenizer* tokenizer = request.stop.empty() ? nullptr : rules.tokenizer;
  beams_.push_back({first, TextAssembler(tokenizer, request), {}});
}

std::vector<int32_t> BeamSearch::Choose(const Sequence& sequence, std::span<const int32_t>,
                                        const Logits& logits) {
  if (scorer_.beams().front().tokens.empty()) cached_tokens_ = sequence.num_cached;
  std::vector<float> logprobs = LogSoftmax(logits(0));
  AddBiases(sequence.last_biases(), &logprobs);
  Penalise(request_.sampling, sequence.counts.list, &logprobs);
  logprobs.resize(rules_.vocab_limit);
  const auto beam = std::find_if(beams_.begin(), beams_.end(),
                                 [&](const Beam& b) { return b.sequence == sequence.id; });
  beam->likely =
      MostLikely(logprobs, std::min(scorer_.num_candidates(), static_cast<int>(logprobs.size())));
  std::erase_if(beam->likely, [](const auto& entry) { return std::isinf(entry.second); });
  return {};
}

void BeamSearch::OnPaused() {
  std::vector<BeamScorer::Likely> likely;
  for (const Beam& beam : beams_) {
    if (beam.likely.empty()) return;
    likely.push_back(beam.likely);
  }
  const size_t num_tokens = scorer_.beams().front().tokens.size() + 1;
  scorer_.Advance(likely, [&](int beam, int32_t token) {
    if (rules_.EndsAnswer(request_, token, num_tokens)) return true;
    TextAssembler text = beams_[beam].text;
    return text.Push(token).stopped;
  });
  common_.OnDecision();
  const std::vector<BeamScorer::Beam>& beams = scorer_.beams();
  const FinishReason limit = beams.empty()
                                 ? FinishReason::kNone
                                 : rules_.LimitReached(request_, beams.front().tokens.size());
  if (scorer_.done() || limit != FinishReason::kNone) return EndAll(limit, OkStatus());
  ContinueSearch();
}

// The first child of a beam continues its sequence, further children fork from it. Beams without a
// child end.
void BeamSearch::ContinueSearch() {
  const std::vector<BeamScorer::Beam>& children = scorer_.beams();
  std::vector<Beam> next;
  std::vector<bool> has_child(beams_.size(), false), forks;
  for (const BeamScorer::Beam& child : children) {
    const Beam& parent = beams_[child.parent];
    forks.push_back(has_child[child.parent]);
    has_child[child.parent] = true;
    next.push_back({forks.back() ? context_.NewSequences(1) : parent.sequence, parent.text, {}});
    next.back().text.Push(child.tokens.back());
    if (!forks.back()) context_.scheduler.Append(parent.sequence, child.tokens.back());
  }
  for (size_t i = 0; i < beams_.size(); ++i) {
    if (!has_child[i]) context_.scheduler.Finish(beams_[i].sequence);
  }
  for (size_t i = 0; i < next.size(); ++i) {
    if (!forks[i]) continue;
    auto seq = context_.MakeSequence(rules_, request_, id_, next[i].sequence);
    seq->tokens.insert(seq->tokens.end(), children[i].tokens.begin(), children[i].tokens.end());
    const int64_t parent = beams_[children[i].parent].sequence;
    const Status forked = context_.scheduler.Fork(parent, std::move(seq));
    KU_CHECK(forked.ok(), "a beam is no longer than the request allows");
  }
  beams_ = std::move(next);
}

// An answer gets `reason` unless its last token ended it. If `reason` is an error, all answers get
// it.
void BeamSearch::EndAll(FinishReason reason, const Status& error) {
  std::set<int32_t> pages;
  for (const Beam& beam : std::exchange(beams_, {})) {
    const auto seq = context_.scheduler.Finish(beam.sequence, reason != FinishReason::kError);
    pages.insert(seq->pages.begin(), seq->pages.end());
  }
  std::vector<BeamScorer::Answer> answers = scorer_.Answers();
  answers.resize(request_.num_samples);  // interrupted before the first token: empty answers
  for (int i = 0; i < request_.num_samples; ++i) {
    Transcript answer = common_;
    TokenEvent event = answer.Event();
    for (const int32_t token : answers[i].tokens) {
      if (event.token.has_value()) context_.events.push_back(event);
      event = answer.Push(token);
      event.sample = i;
    }
    event.sample = i;
    const bool ended = answers[i].ended && reason != FinishReason::kError;
    Completion completion =
        answer.Finish(ended ? event.finish : reason, ended ? OkStatus() : error, &event);
    completion.score = answers[i].score;
    completion.cached_tokens = cached_tokens_;
    completion.pages.assign(pages.begin(), pages.end());
    context_.Finish(std::move(event), std::move(completion));
  }
}

std::optional<int64_t> BeamSearch::SequenceOf(int sample) const {
  const bool exists = sample >= 0 && static_cast<size_t>(sample) < beams_.size();
  return exists ? std::optional(beams_[sample].sequence) : std::nullopt;
}

}  // namespace kuiper
