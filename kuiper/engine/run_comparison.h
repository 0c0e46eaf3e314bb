// Finds where two ways of running a request diverge: the first generated token whose logits or id
// differ, and the layer after which they differ. For --verify-paged and tests of the guarantees. It
// calls functions that run the request and does not depend on an engine.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"

namespace kuiper {

struct RunDifference {
  int token = 0;             // generated token, from 0
  std::optional<int> layer;  // first layer that differs; absent: all layers are equal
  std::string what;          // "token 3, layer 5: ..., 0.5 in A, 0.25 in B"
};

// An answer and the name of its run.
struct NamedAnswer {
  std::string name;
  const Completion& completion;
};

// Returns the first token at which two answers differ. Compares logits, or their digests, if both
// answers have them, and then ids. `vocab`: floats per row of logits.
std::optional<RunDifference> FirstDifference(const NamedAnswer& a, const NamedAnswer& b, int vocab);

// One way of running the request, with Request::keep_logits and the given Request::hidden_of. The
// run may end after that token with FinishReason::kInterrupt.
struct ComparedRun {
  std::string name;
  std::function<StatusOr<Completion>(std::optional<int> hidden_of)> run;
};

struct RunComparison {
  Completion first;  // the answer of the first run
  std::optional<RunDifference> difference;
};

// Runs `a`, then `b`. If they differ, runs both again up to the first different token, and compares
// their hidden rows. `vocab`, `hidden`: floats per row of logits and per hidden row.
StatusOr<RunComparison> CompareRuns(const ComparedRun& a, const ComparedRun& b, int vocab,
                                    int hidden);

}  // namespace kuiper
