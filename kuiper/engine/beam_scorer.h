// Beam search over generated tokens: which continuations are kept and when it ends. Pure host
// logic, used by Engine::BeamSearch; it knows neither sequences nor pages.
//
// As in Hugging Face's generate (early_stopping=False): in each step the candidates of all beams
// are ranked by their sum of log probabilities. The best `width` that do not end the answer go on;
// one that does is kept if it ranks among the first `width`, scored by
//   sum / length^length_penalty, the length counting the end-of-sequence token.
// The search is done when `width` ended answers score at least what the best candidate would at its
// current length. Equal sums: the lower beam, then the lower id.
#pragma once

#include <cstdint>
#include <vector>

#include "kuiper/engine/request.h"

namespace kuiper {

class BeamScorer {
 public:
  struct Beam {
    int parent = 0;               // index among the beams of the step before
    std::vector<int32_t> tokens;  // generated
    double logprob = 0;           // sum over the tokens
  };
  struct Answer {
    std::vector<int32_t> tokens;
    double score = 0;
    bool ended = false;  // by an end-of-sequence token
  };

  // `eos` may be empty: then answers end by their length only.
  BeamScorer(const BeamOptions& options, std::vector<int32_t> eos);

  // Tokens that Advance needs of each beam, or the whole vocabulary if that is less.
  int num_candidates() const { return options_.width * (1 + static_cast<int>(eos_.size())); }
  // likely[i]: the most likely tokens after beams()[i], most likely first.
  void Advance(const std::vector<std::vector<std::pair<int32_t, float>>>& likely);
  // At first one beam without tokens.
  const std::vector<Beam>& beams() const { return beams_; }
  bool done() const { return done_; }
  // The best answers so far, best first, at most `width`; unless the search is done, the beams
  // count as answers too.
  std::vector<Answer> Answers() const;

 private:
  double Score(double logprob, size_t length) const;
  static void Keep(Answer answer, size_t most, std::vector<Answer>* answers);

  BeamOptions options_;
  std::vector<int32_t> eos_;
  std::vector<Beam> beams_ = {{}};
  std::vector<Answer> ended_;  // best first
  bool done_ = false;
};

}  // namespace kuiper
