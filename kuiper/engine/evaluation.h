// How well engines predict a text, and how far they are from the first of them: for programs that
// choose between types, caches or models. It runs engines and prints nothing.
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
  ScoreComparison comparison;  // with the first engine, of which it has no counts
  double seconds = 0;          // of computing
};

// All engines compute window by window in turn, so that the sums of an evaluation that was stopped
// belong to the same tokens.
class Evaluation {
 public:
  // The text as ids of tokens, and the windows of PlanWindows, at least one.
  Evaluation(std::vector<int32_t> ids, std::vector<TextWindow> windows);

  // Memory for the logits of a window [scored, vocab] that others are compared with, f32. To be
  // called before engines plan theirs; not needed for one engine.
  void ReserveComparison(int vocab);
  // With EngineConfig::prompt_logits, a context of at least a window, and the vocabulary of the
  // others; must outlive the evaluation's Run.
  void Add(Engine& engine);
  // Calls `go_on` after each row of logits and each window with the windows that are done, of all
  // engines together; the answer counts where a window of an engine ends. False if it was stopped
  // before the last one. The errors of Engine::Logits; kInternal for logits that are not finite.
  StatusOr<bool> Run(const std::function<bool(int64_t done, int64_t total)>& go_on);

  // Of whole windows that all engines have computed; in the order of Add.
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
  // The first engine's rows of the window that is computed.
  std::vector<float> reference_logits_;     // [scored, vocab]
  std::vector<RowScore> reference_scores_;  // [scored]
};

}  // namespace kuiper
