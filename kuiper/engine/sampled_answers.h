// The default way of answering: uses the sampled tokens, unless the reasoning budget forces one.
// Each answer is a sequence. The others fork from the first sequence when its prompt is computed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kuiper/engine/decoding_strategy.h"
#include "kuiper/engine/reasoning_budget.h"
#include "kuiper/engine/transcript.h"

namespace kuiper {

class SampledAnswers : public DecodingStrategy {
 public:
  // Sequence `first` is in the scheduler. Sample i becomes sequence `first` + i. `rules` and `desk`
  // must outlive the answers.
  SampledAnswers(const AnswerRules& rules, AnswerContext& context, int64_t id,
                 const Request& request, int64_t first);

  void OnLaunch(int64_t sequence) override { Of(sequence).OnLaunch(); }
  bool MayRunAhead(int64_t sequence) const override;
  std::vector<int32_t> Choose(const Sequence& sequence, std::span<const int32_t> sampled,
                              const Logits& logits) override;
  void OnPromptLogits(const Sequence& sequence, int position,
                      std::span<const float> logits) override;
  void OnHidden(int64_t sequence, int layer, std::span<const float> values) override {
    Of(sequence).RecordHidden(layer, values);
  }
  void OnTokens(int64_t sequence, std::span<const int32_t> tokens) override;
  // The prompt is computed, and the request asks for no token: ends all answers.
  void OnPaused() override;
  void End(int64_t sequence, FinishReason reason, const Status& error) override;
  void Abort(std::optional<int> sample) override;
  std::optional<int64_t> SequenceOf(int sample) const override;
  bool done() const override { return num_running_ == 0; }

 private:
  Transcript& Of(int64_t sequence) { return *answers_.at(sequence - first_); }
  void ForkOthers();
  void Finish(int64_t sequence, FinishReason reason, const Status& error, TokenEvent event);

  const AnswerRules& rules_;
  AnswerContext& context_;
  const int64_t id_;
  const Request request_;
  const ReasoningBudget budget_;
  std::vector<TokenLogprobs> prompt_logprobs_;
  const int64_t first_;
  std::vector<std::optional<Transcript>> answers_;  // absent: ended
  int num_running_;
  bool forked_ = false;
};

}  // namespace kuiper
