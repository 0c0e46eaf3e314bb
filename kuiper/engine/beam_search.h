// Answers by beam search: each beam is a sequence. A beam whose logits are known is paused until
// those of all beams are. Then the search advances by one token, and a beam with several children
// forks. So it does not matter in which steps the beams are computed, or with which other
// sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/beam_scorer.h"
#include "kuiper/engine/decoding_strategy.h"
#include "kuiper/engine/text_assembler.h"
#include "kuiper/engine/transcript.h"

namespace kuiper {

class BeamSearch : public DecodingStrategy {
 public:
  // Sequence `first` is in the scheduler. `rules` and `desk` must outlive the search.
  BeamSearch(const AnswerRules& rules, AnswerContext& context, int64_t id, const Request& request,
             int64_t first);
  static Status Check(const AnswerRules& rules, const Request& request);

  void OnLaunch(int64_t) override { common_.OnLaunch(); }
  bool MayRunAhead(int64_t) const override { return false; }
  // Scores the beam and returns no token, so that the beam is paused.
  std::vector<int32_t> Choose(const Sequence& sequence, std::span<const int32_t> sampled,
                              const Logits& logits) override;
  void OnTokens(int64_t, std::span<const int32_t>) override {}
  // Advances the search by one token if all beams are scored.
  void OnPaused() override;
  // Ends the search with the answers so far.
  void End(int64_t, FinishReason reason, const Status& error) override { EndAll(reason, error); }
  void Abort(std::optional<int>) override { EndAll(FinishReason::kInterrupt, OkStatus()); }
  std::optional<int64_t> SequenceOf(int sample) const override;
  bool done() const override { return beams_.empty(); }

 private:
  struct Beam {
    int64_t sequence = 0;
    TextAssembler text;         // finds stop strings
    BeamScorer::Likely likely;  // empty: not scored yet
  };

  // Continues the search with the scorer's beams: gives each of them a sequence.
  void ContinueSearch();
  void EndAll(FinishReason reason, const Status& error);

  const AnswerRules& rules_;
  AnswerContext& context_;
  const int64_t id_;
  const Request request_;
  BeamScorer scorer_;
  std::vector<Beam> beams_;  // in the scorer's order; empty: the search has ended
  Transcript common_;        // without tokens: the times that all answers share
  int cached_tokens_ = 0;
};

}  // namespace kuiper
