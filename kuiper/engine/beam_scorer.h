// Beam search over generated tokens: selects the continuations to keep and detects the end. Pure
// host logic without sequences, pages or text.
//
// As in Hugging Face's generate (transformers 4.57 and 5.23, early_stopping=False): each step ranks
// the candidates of all beams by their sum of log probabilities. The best `width` candidates that
// do not end the answer become the next beams. A candidate that ends it is kept if it ranks among
// the first `width`. Its score is
//   sum / length^length_penalty.
// The length counts all generated tokens, including the ending one. The search is done when `width`
// ended answers score at least what the best remaining beam would score at its current length. For
// equal sums, the lower beam comes first, then the lower id.
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
    int parent = 0;               // index among the beams of the previous step
    std::vector<int32_t> tokens;  // generated
    double logprob = 0;           // sum over the tokens
  };
  struct Answer {
    std::vector<int32_t> tokens;
    double score = 0;
    bool ended = false;  // ended by its last token
  };
  // Candidate tokens after a beam with their log probabilities, most likely first.
  using Likely = std::vector<std::pair<int32_t, float>>;
  // True if `token`, appended to beams()[beam], ends the answer.
  using Ends = std::function<bool(int beam, int32_t token)>;

  // num_eos: number of tokens that end an answer regardless of its text.
  BeamScorer(int width, float length_penalty, int num_eos);

  // Candidates that Advance needs per beam (the whole vocabulary if that is smaller).
  int num_candidates() const { return width_ * std::max(2, 1 + num_eos_); }
  // likely[i]: the most likely tokens after beams()[i].
  void Advance(const std::vector<Likely>& likely, const Ends& ends);
  // Initially one beam without tokens.
  const std::vector<Beam>& beams() const { return beams_; }
  bool done() const { return done_; }
  // The best answers so far, best first, at most `width`. Until the search is done, the beams count
  // as answers too.
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
