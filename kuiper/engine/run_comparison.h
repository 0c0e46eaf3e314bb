// Where two ways of running a request part: the first generated token whose logits or id differ,
// and the layer behind which they do. For --verify-paged and for tests of the guarantees; it knows
// no engine, only how to ask for a run.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"

namespace kuiper {

struct RunDifference {
  int token = 0;             // generated, from 0
  std::optional<int> layer;  // the first one; absent: the runs are equal behind every layer
  std::string what;          // "token 3, layer 5: ..., 0.5 in A, 0.25 in B"
};

// An answer, and what its run is called.
struct NamedAnswer {
  std::string name;
  const Completion& completion;
};

// The first token at which two answers part: by its logits, or by their digests, where both have
// them, else by its id. `vocab`: floats of a row of logits.
std::optional<RunDifference> FirstDifference(const NamedAnswer& a, const NamedAnswer& b, int vocab);

// One way of running the request: with Request::keep_logits, and with `hidden_of` as
// Request::hidden_of. What ends after that token may do so by FinishReason::kInterrupt.
struct ComparedRun {
  std::string name;
  std::function<StatusOr<Completion>(std::optional<int> hidden_of)> run;
};

struct RunComparison {
  Completion first;  // of the first run
  std::optional<RunDifference> difference;
};

// Runs `a`, then `b`; where they differ both run once more up to that token, and their hidden rows
// are compared. `vocab` and `hidden`: floats of a row of logits and of a hidden row.
StatusOr<RunComparison> CompareRuns(const ComparedRun& a, const ComparedRun& b, int vocab,
                                    int hidden);

}  // namespace kuiper
