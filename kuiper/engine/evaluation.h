// Measures how well engines predict a text and how far they are from the first of them, for
// programs that choose between types, caches or models. It runs engines and prints nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/text_score.h"

namespace kuiper {

// The sums of one engine.
struct EvaluatedEngine {
  TextScore score;
  ScoreComparison comparison;  // with the first engine, whose own counts are 0
  double seconds = 0;          // time spent computing
};

// All engines compute each window before the next one, so that the sums of a stopped evaluation
// cover the same tokens.
class Evaluation {
 public:
  // Takes the text as token ids, and the windows of PlanWindows, at least one.
  Evaluation(std::vector<int32_t> ids, std::vector<TextWindow> windows);

  // Reserves memory for the reference logits [scored, vocab] of a window, f32. Call before engines
  // plan their memory; not needed for one engine.
  void ReserveComparison(int vocab);
  // Adds an engine, which must outlive Run. It needs EngineConfig::prompt_logits, a context of at
  // least a window, and the vocabulary of the other engines.
  void Add(Engine& engine);
  // Calls `go_on` after each row of logits and after each window, with the number of finished
  // windows of all engines together. Its result counts only where a window of an engine ends.
  // Returns false if it was stopped before the last window. Returns the errors of Engine::Logits;
  // kInternal for logits that are not finite.
  StatusOr<bool> Run(const std::function<bool(int64_t done, int64_t total)>& go_on);

  // Sums over the windows that all engines have completed; in the order of Add.
  const std::vector<EvaluatedEngine>& engines() const { return sums_; }

 private:
  // Sums of the window of one engine.
  struct Window {
    TextScore score;
    ScoreComparison comparison;
  };

  StatusOr<Window> Compute(const TextWindow& window, size_t index,
                           const std::function<void()>& after_row);
  void Compare(std::span<const float> row, const RowScore& score, size_t i, bool is_reference,
               Window* sums);

  const std::vector<int32_t> ids_;
  const std::vector<TextWindow> windows_;
  std::vector<Engine*> engines_;
  std::vector<EvaluatedEngine> sums_;
  // The first engine's rows of the current window.
  std::vector<float> reference_logits_;     // [scored, vocab]
  std::vector<RowScore> reference_scores_;  // [scored]
};

}  // namespace kuiper
