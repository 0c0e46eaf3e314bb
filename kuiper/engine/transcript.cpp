#include "kuiper/engine/transcript.h"

#include <bit>
#include <utility>

#include "kuiper/base/hash.h"
#include "kuiper/engine/logprobs.h"

namespace kuiper {

void Transcript::OnLaunch() {
  if (first_step_.has_value()) return;
  first_step_ = Clock::now();
  completion_.queue_ms = MillisecondsSince(added_);
}

void Transcript::OnDecision() {
  if (!first_token_.has_value()) {
    first_token_ = Clock::now();
    completion_.prefill_ms = MillisecondsSince(*first_step_);
  }
  completion_.decode_ms = MillisecondsSince(*first_token_);
}

void Transcript::RecordLogits(std::span<const float> logits, int32_t token) {
  if (request_.keep_logits) {
    completion_.logits.insert(completion_.logits.end(), logits.begin(), logits.end());
  }
  if (request_.digest_logits) {
    uint64_t digest = kFnv1a64Init;
    for (const float logit : logits) {
      const auto bits = std::bit_cast<int32_t>(logit);
      digest = Fnv1a64({&bits, 1}, digest);
    }
    completion_.logit_digests.push_back(digest);
  }
  if (request_.num_logprobs > 0) {
    completion_.logprobs.push_back(LogprobsOf(logits, token, request_.num_logprobs));
  }
}

void Transcript::RecordHidden(int layer, std::span<const float> values) {
  std::vector<float>& hidden = completion_.hidden;
  hidden.resize(layer * values.size());
  hidden.insert(hidden.end(), values.begin(), values.end());
}

TokenEvent Transcript::Event() {
  TokenEvent event;
  event.request = id_;
  event.sample = sample_;
  event.prompt_logprobs = std::exchange(unsent_prompt_, {});
  return event;
}

TokenEvent Transcript::Push(int32_t token) {
  completion_.tokens.push_back(token);
  TokenEvent event = Event();
  event.token = token;
  if (completion_.logprobs.size() == completion_.tokens.size()) {
    event.logprobs = completion_.logprobs.back();
  }
  if (rules_.EndsAnswer(request_, token, completion_.tokens.size())) {
    event.finish = FinishReason::kStop;
    return event;
  }
  const TextAssembler::Delta delta = text_.Push(token);
  Append(delta, &event);
  event.finish = delta.stopped ? FinishReason::kStopString
                               : rules_.LimitReached(request_, completion_.tokens.size());
  return event;
}

Completion Transcript::Finish(FinishReason reason, const Status& error, TokenEvent* event) {
  Append(text_.Finish(), event);
  event->finish = completion_.finish = reason;
  completion_.error = error;
  // A step launched before the answer ended may have computed the row of a further token.
  if (request_.hidden_of >= static_cast<int>(completion_.tokens.size())) completion_.hidden.clear();
  completion_.stop_string = text_.found_stop();
  completion_.prompt_tokens = static_cast<int>(request_.prompt.size());
  completion_.has_reasoning = text_.has_reasoning();
  completion_.inside_thinking = text_.inside_thinking();
  completion_.reasoning_tokens = text_.reasoning_tokens();
  return std::move(completion_);
}

void Transcript::Append(const TextAssembler::Delta& delta, TokenEvent* event) {
  completion_.text += delta.text;
  completion_.reasoning += delta.reasoning;
  event->text += delta.text;
  event->reasoning += delta.reasoning;
}

}  // namespace kuiper
