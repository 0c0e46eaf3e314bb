// One answer while it is generated: its tokens, its text and its times, as the caller will see
// them. Every way of answering writes one per answer; it knows nothing of sequences.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kuiper/base/clock.h"
#include "kuiper/engine/answering.h"
#include "kuiper/engine/request.h"
#include "kuiper/engine/text_assembler.h"

namespace kuiper {

class Transcript {
 public:
  // `rules` and `request` must outlive it.
  Transcript(const AnswerRules& rules, const Request& request, int64_t id, int sample)
      : rules_(rules),
        request_(request),
        id_(id),
        sample_(sample),
        text_(rules.tokenizer, request) {}

  // Takes the time: a step that works on the answer was launched; a token was decided.
  void OnLaunch();
  void OnDecision();

  // Keeps what the request wants of the logits [vocab] that `token` is chosen from.
  void RecordLogits(std::span<const float> logits, int32_t token);
  // The same for the prompt, which events and the completion tell from here on.
  void RecordPrompt(const std::vector<TokenLogprobs>& logprobs) {
    completion_.prompt_logprobs = untold_prompt_ = logprobs;
  }
  // Keeps the residual stream [hidden] behind a layer.
  void RecordHidden(int layer, std::span<const float> values);
  // Appends a token. The event says whether the answer ends with it.
  TokenEvent Push(int32_t token);
  // An event without a token.
  TokenEvent Event();
  // Ends the answer; the text that was held back is appended to the event's.
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
  std::vector<TokenLogprobs> untold_prompt_;  // of the prompt, until an event has them
  Clock::time_point added_ = Clock::now();
  std::optional<Clock::time_point> first_step_, first_token_;
};

}  // namespace kuiper
