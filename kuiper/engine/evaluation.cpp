#include "kuiper/engine/evaluation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/base/clock.h"

namespace kuiper {

Evaluation::Evaluation(std::vector<int32_t> ids, std::vector<TextWindow> windows)
    : ids_(std::move(ids)), windows_(std::move(windows)) {
  KU_CHECK(!windows_.empty() && windows_.back().end <= static_cast<int64_t>(ids_.size()));
}

void Evaluation::ReserveComparison(int vocab) {
  int most = 0;
  for (const TextWindow& window : windows_) most = std::max(most, window.num_scored());
  reference_logits_.resize(static_cast<size_t>(most) * vocab);
}

void Evaluation::Add(Engine& engine) {
  engines_.push_back(&engine);
  sums_.emplace_back();
}

void Evaluation::Compare(std::span<const float> row, const RowScore& score, size_t i,
                         bool is_reference, Window* sums) {
  if (reference_logits_.empty()) return;
  const std::span<float> reference(reference_logits_.data() + i * row.size(), row.size());
  if (is_reference) {
    std::copy(row.begin(), row.end(), reference.begin());
    reference_scores_.push_back(score);
    return;
  }
  const RowScore& expected = reference_scores_.at(i);
  sums->comparison.Add(expected, score, Divergence(reference, expected, row, score));
}

// The last token of a window is not needed to predict another one, so it is not computed.
StatusOr<Evaluation::Window> Evaluation::Compute(const TextWindow& window, size_t index,
                                                 const std::function<void()>& after_row) {
  Engine& engine = *engines_[index];
  const std::vector<int32_t> prompt(ids_.begin() + window.begin, ids_.begin() + window.end - 1);
  const int first = static_cast<int>(window.first_scored - window.begin) - 1;
  const size_t vocab = static_cast<size_t>(engine.model_config().decoder.vocab);
  if (index == 0) reference_scores_.clear();
  Window sums;
  std::optional<int64_t> not_finite;  // the first position with such logits
  const auto on_row = [&](int position, const float* logits) {
    const std::span<const float> row(logits, vocab);
    const std::optional<RowScore> score = ScoreRow(row, ids_[window.begin + position + 1]);
    if (!score.has_value()) not_finite = not_finite.value_or(window.begin + position);
    if (not_finite.has_value()) return;
    sums.score.Add(score->logprob);
    Compare(row, *score, static_cast<size_t>(position - first), index == 0, &sums);
    after_row();
  };
  KU_RETURN_IF_ERROR(engine.Logits(prompt, on_row, first));
  if (!not_finite.has_value()) return sums;
  return Status(StatusCode::kInternal,
                engine.config().model_path + ": the logits of position " +
                    std::to_string(*not_finite) + " are not finite",
                "try " + Param("dtype") + " bf16 or fp32");
}

StatusOr<bool> Evaluation::Run(const std::function<bool(int64_t done, int64_t total)>& go_on) {
  KU_CHECK(engines_.size() == 1 || !reference_logits_.empty());
  const int64_t total = static_cast<int64_t>(windows_.size() * engines_.size());
  int64_t done = 0;
  for (const TextWindow& window : windows_) {
    std::vector<Window> sums;
    for (size_t i = 0; i < engines_.size(); ++i) {
      if (!go_on(done, total)) return false;
      const Clock::time_point begin = Clock::now();
      KU_ASSIGN_OR_RETURN(const Window one, Compute(window, i, [&] { go_on(done, total); }));
      sums_[i].seconds += SecondsSince(begin);
      sums.push_back(one);
      ++done;
    }
    for (size_t i = 0; i < engines_.size(); ++i) {
      sums_[i].score.Add(sums[i].score);
      sums_[i].comparison.Add(sums[i].comparison);
    }
  }
  return true;
}

}  // namespace kuiper
