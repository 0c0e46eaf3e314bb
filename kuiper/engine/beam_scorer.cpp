#include "kuiper/engine/beam_scorer.h"

#include <cmath>
#include <tuple>

#include "kuiper/base/check.h"

namespace kuiper {

BeamScorer::BeamScorer(int width, float length_penalty, int num_eos)
    : width_(width), length_penalty_(length_penalty), num_eos_(num_eos) {
  KU_CHECK(width >= 1);
}

double BeamScorer::Score(double logprob, size_t length) const {
  return logprob / std::pow(static_cast<double>(length), length_penalty_);
}

// Inserts the answer after those with the same score; keeps the best `width`.
void BeamScorer::Keep(Answer answer, std::vector<Answer>* answers) const {
  const auto place =
      std::upper_bound(answers->begin(), answers->end(), answer,
                       [](const Answer& a, const Answer& b) { return a.score > b.score; });
  answers->insert(place, std::move(answer));
  if (answers->size() > static_cast<size_t>(width_)) answers->pop_back();
}

void BeamScorer::Advance(const std::vector<Likely>& likely, const Ends& ends) {
  KU_CHECK(!done_ && likely.size() == beams_.size());
  std::vector<std::tuple<double, int, int32_t>> candidates;  // negative sum, beam, token
  for (size_t i = 0; i < likely.size(); ++i) {
    for (const auto& [token, logprob] : likely[i]) {
      candidates.emplace_back(-(beams_[i].logprob + logprob), static_cast<int>(i), token);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  const size_t width = static_cast<size_t>(width_);
  const size_t length = beams_[0].tokens.size() + 1;
  std::vector<Beam> next;
  for (size_t rank = 0; rank < candidates.size() && next.size() < width; ++rank) {
    const auto& [negative, parent, token] = candidates[rank];
    std::vector<int32_t> tokens = beams_[parent].tokens;
    tokens.push_back(token);
    if (!ends(parent, token)) {
      next.push_back({parent, std::move(tokens), -negative});
    } else if (rank < width) {
      Keep({std::move(tokens), Score(-negative, length), true}, &ended_);
    }
  }
  done_ = next.empty() ||
          (ended_.size() == width && ended_.back().score >= Score(next.front().logprob, length));
  beams_ = std::move(next);
}

std::vector<BeamScorer::Answer> BeamScorer::Answers() const {
  std::vector<Answer> answers = ended_;
  for (const Beam& beam : beams_) {
    if (done_ || beam.tokens.empty()) break;
    Keep({beam.tokens, Score(beam.logprob, beam.tokens.size()), false}, &answers);
  }
  return answers;
}

}  // namespace kuiper
