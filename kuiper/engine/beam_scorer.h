// Beam search over generated tokens: which continuations are kept and when it ends. Pure host
// logic; it knows neither sequences nor pages nor text.
//
// As in Hugging Face's generate (transformers 4.57 and 5.23, early_stopping=False): in each step
// the candidates of all beams are ranked by their sum of log probabilities. The best `width` that
// do not end the answer go on; one that does is kept if it ranks among the first `width`, scored by
//   sum / length^length_penalty, the length counting all generated tokens, the ending one too.
// The search is done when `width` ended answers score at least what the best beam that goes on
// would at its current length. Equal sums: the lower beam, then the lower id.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

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
    bool ended = false;  // by its last token
  };
  // What may come after a beam, most likely first, with log probabilities.
  using Likely = std::vector<std::pair<int32_t, float>>;
  // Whether `token` behind beams()[beam] ends the answer.
  using Ends = std::function<bool(int beam, int32_t token)>;

  // num_eos: how many tokens end an answer wherever they stand.
  BeamScorer(int width, float length_penalty, int num_eos);

  // Tokens that Advance needs of each beam, or the whole vocabulary if that is less.
  int num_candidates() const { return width_ * std::max(2, 1 + num_eos_); }
  // likely[i]: the most likely tokens after beams()[i].
  void Advance(const std::vector<Likely>& likely, const Ends& ends);
  // At first one beam without tokens.
  const std::vector<Beam>& beams() const { return beams_; }
  bool done() const { return done_; }
  // The best answers so far, best first, at most `width`; unless the search is done, the beams
  // count as answers too.
  std::vector<Answer> Answers() const;

 private:
  double Score(double logprob, size_t length) const;
  void Keep(Answer answer, std::vector<Answer>* answers) const;

  int width_;
  float length_penalty_;
  int num_eos_;
  std::vector<Beam> beams_ = {{}};
  std::vector<Answer> ended_;  // best first
  bool done_ = false;
};

}  // namespace kuiper
