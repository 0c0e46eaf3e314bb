// One answer while it is generated: its tokens, text and times, as the caller will get them. Every
// Answering object writes one per answer. Independent of sequences.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kuiper/base/clock.h"
#include "kuiper/engine/decoding_strategy.h"
#include "kuiper/engine/request.h"
#include "kuiper/engine/text_assembler.h"

namespace kuiper {

class Transcript {
 public:
  // `rules` and `request` must outlive the transcript.
  Transcript(const AnswerRules& rules, const Request& request, int64_t id, int sample)
      : rules_(rules),
        request_(request),
        id_(id),
        sample_(sample),
        text_(rules.tokenizer, request) {}

  // Record the time: a step for the answer was launched; a token was chosen.
  void OnLaunch();
  void OnDecision();

  // Records what the request wants of the logits [vocab] that `token` is chosen from.
  void RecordLogits(std::span<const float> logits, int32_t token);
  // Records the prompt's log probabilities, for the next event and the completion.
  void RecordPrompt(const std::vector<TokenLogprobs>& logprobs) {
    completion_.prompt_logprobs = unsent_prompt_ = logprobs;
  }
  // Records the residual stream [hidden] after a layer.
  void RecordHidden(int layer, std::span<const float> values);
  // Appends a token. The event has the finish reason if the answer ends with it.
  TokenEvent Push(int32_t token);
  // Returns an event without a token.
  TokenEvent Event();
  // Ends the answer and appends the text that was held back to the event's.
  Completion Finish(FinishReason reason, const Status& error, TokenEvent* event);

  size_t num_tokens() const { return completion_.tokens.size(); }
  const TextAssembler& text() const { return text_; }

 private:
  void Append(const TextAssembler::Delta& delta, TokenEvent* event);

  const AnswerRules& rules_;
  const Request& request_;
  int64_t id_;
  int sample_;
  TextAssembler text_;
  Completion completion_;
  std::vector<TokenLogprobs> unsent_prompt_;  // not yet in an event
  Clock::time_point added_ = Clock::now();
  std::optional<Clock::time_point> first_step_, first_token_;
};

}  // namespace kuiper
