#include "kuiper/engine/beam_scorer.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "kuiper/base/check.h"

namespace kuiper {

BeamScorer::BeamScorer(const BeamOptions& options, std::vector<int32_t> eos)
    : options_(options), eos_(std::move(eos)) {
  KU_CHECK(options.width >= 1);
}

double BeamScorer::Score(double logprob, size_t length) const {
  return logprob / std::pow(static_cast<double>(length), options_.length_penalty);
}

// Behind those that are as good.
void BeamScorer::Keep(Answer answer, size_t most, std::vector<Answer>* answers) {
  const auto place =
      std::upper_bound(answers->begin(), answers->end(), answer,
                       [](const Answer& a, const Answer& b) { return a.score > b.score; });
  answers->insert(place, std::move(answer));
  if (answers->size() > most) answers->pop_back();
}

void BeamScorer::Advance(const std::vector<std::vector<std::pair<int32_t, float>>>& likely) {
  KU_CHECK(!done_ && likely.size() == beams_.size());
  std::vector<std::tuple<double, int, int32_t>> candidates;  // negative sum, beam, token
  for (size_t i = 0; i < likely.size(); ++i) {
    for (const auto& [token, logprob] : likely[i]) {
      candidates.emplace_back(-(beams_[i].logprob + logprob), static_cast<int>(i), token);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  const size_t width = static_cast<size_t>(options_.width);
  std::vector<Beam> next;
  for (size_t rank = 0; rank < candidates.size() && next.size() < width; ++rank) {
    const auto& [negative, parent, token] = candidates[rank];
    std::vector<int32_t> tokens = beams_[parent].tokens;
    tokens.push_back(token);
    if (std::find(eos_.begin(), eos_.end(), token) == eos_.end()) {
      next.push_back({parent, std::move(tokens), -negative});
    } else if (rank < width) {
      const double score = Score(-negative, tokens.size());
      Keep({std::move(tokens), score, true}, width, &ended_);
    }
  }
  const size_t length = beams_[0].tokens.size() + 1;
  const double attainable = Score(-std::get<0>(candidates.at(0)), length);
  done_ = next.empty() || (ended_.size() == width && ended_.back().score >= attainable);
  beams_ = std::move(next);
}

std::vector<BeamScorer::Answer> BeamScorer::Answers() const {
  std::vector<Answer> answers = ended_;
  for (const Beam& beam : beams_) {
    if (done_ || beam.tokens.empty()) break;
    Keep({beam.tokens, Score(beam.logprob, beam.tokens.size()), false},
         static_cast<size_t>(options_.width), &answers);
  }
  return answers;
}

}  // namespace kuiper
