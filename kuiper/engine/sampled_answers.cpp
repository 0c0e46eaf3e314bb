#include "kuiper/engine/sampled_answers.h"

#include <utility>

#include "kuiper/engine/logprobs.h"

namespace kuiper {

SampledAnswers::SampledAnswers(const AnswerRules& rules, AnswerContext& context, int64_t id,
                               const Request& request, int64_t first)
    : rules_(rules),
      context_(context),
      id_(id),
      request_(request),
      budget_(rules.tokenizer, request, rules.max_context),
      first_(first),
      num_running_(request.num_samples) {
  for (int i = 0; i < num_running_; ++i)
    answers_.emplace_back(std::in_place, rules, request_, id, i);
}

bool SampledAnswers::MayRunAhead(int64_t sequence) const {
  const Transcript& answer = *answers_.at(sequence - first_);
  return !request_.reads_logits() && !request_.sampling.has_penalties() &&
         !budget_.ForcedToken(answer.text()).has_value() &&
         rules_.LimitReached(request_, answer.num_tokens() + 1) == FinishReason::kNone;
}

std::vector<int32_t> SampledAnswers::Choose(const Sequence& sequence,
                                            std::span<const int32_t> sampled,
                                            const Logits& logits) {
  if (request_.max_new_tokens == 0) return {};
  Transcript& answer = Of(sequence.id);
  const int32_t token = budget_.ForcedToken(answer.text()).value_or(sampled.front());
  if (request_.reads_logits()) answer.RecordLogits(logits(0), token);
  return {token};
}

void SampledAnswers::OnPromptLogits(const Sequence& sequence, int position,
                                    std::span<const float> logits) {
  // Sequences that could not fork each compute the prompt.
  if (static_cast<size_t>(position) != prompt_logprobs_.size()) return;
  prompt_logprobs_.push_back(
      LogprobsOf(logits, sequence.tokens.at(position + 1), *request_.num_prompt_logprobs));
}

void SampledAnswers::OnPaused() {
  forked_ = true;  // they need nothing: the first sequence computed the prompt
  for (int i = 0; i < request_.num_samples; ++i) {
    if (!answers_[i].has_value()) continue;
    answers_[i]->OnLaunch();
    answers_[i]->OnDecision();
    End(first_ + i, FinishReason::kLength, OkStatus());
  }
}

void SampledAnswers::OnTokens(int64_t sequence, std::span<const int32_t> tokens) {
  ForkOthers();
  Transcript& answer = Of(sequence);
  if (answer.num_tokens() == 0) answer.RecordPrompt(prompt_logprobs_);
  answer.OnDecision();
  for (const int32_t token : tokens) {
    TokenEvent event = answer.Push(token);
    const FinishReason reason = event.finish;
    if (reason != FinishReason::kNone) {
      return Finish(sequence, reason, OkStatus(), std::move(event));
    }
    context_.events.push_back(std::move(event));
  }
}

void SampledAnswers::End(int64_t sequence, FinishReason reason, const Status& error) {
  Transcript& answer = Of(sequence);
  if (answer.num_tokens() == 0) answer.RecordPrompt(prompt_logprobs_);
  Finish(sequence, reason, error, answer.Event());
}

void SampledAnswers::Abort(std::optional<int> sample) {
  for (int i = sample.value_or(0); i <= sample.value_or(request_.num_samples - 1); ++i) {
    const std::optional<int64_t> sequence = SequenceOf(i);
    if (sequence.has_value()) End(*sequence, FinishReason::kInterrupt, OkStatus());
  }
}

void SampledAnswers::Finish(int64_t sequence, FinishReason reason, const Status& error,
                            TokenEvent event) {
  std::optional<Transcript>& answer = answers_.at(sequence - first_);
  Completion completion = answer->Finish(reason, error, &event);
  completion.seed = request_.sampling.seed + static_cast<uint64_t>(sequence - first_);
  answer.reset();
  --num_running_;
  const auto seq = context_.scheduler.Finish(sequence, reason != FinishReason::kError);
  if (seq != nullptr) {  // null: not forked yet
    completion.cached_tokens = seq->num_cached;
    completion.dropped_tokens = seq->num_dropped;
    completion.pages = std::move(seq->pages);
  }
  if (sequence == first_) ForkOthers();
  context_.Finish(std::move(event), std::move(completion));
}

// The other sequences share the part of the prompt that the first one has computed. If it has
// ended, they start on their own.
void SampledAnswers::ForkOthers() {
  if (std::exchange(forked_, true)) return;
  for (int64_t id = first_ + 1; id < first_ + request_.num_samples; ++id) {
    if (!answers_.at(id - first_).has_value()) continue;  // aborted
    auto seq = context_.MakeSequence(rules_, request_, id_, id);
    seq->sampling.seed += id - first_;
    if (request_.num_prompt_logprobs.has_value()) {
      seq->next_prompt_row = static_cast<int>(prompt_logprobs_.size());
    }
    const Status forked = context_.scheduler.Fork(first_, std::move(seq));
    KU_CHECK(forked.ok(), "the first sequence has the same prompt and was accepted");
  }
}

std::optional<int64_t> SampledAnswers::SequenceOf(int sample) const {
  const bool runs = sample >= 0 && sample < request_.num_samples && answers_[sample].has_value();
  return runs ? std::optional(first_ + sample) : std::nullopt;
}

}  // namespace kuiper
