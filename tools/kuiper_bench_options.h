// What the options of kuiper_bench ask for. Errors are kInvalidArgument.
#pragma once

#include "kuiper/base/status.h"
#include "kuiper/ops/ops.h"
#include "tools/kuiper_bench_run.h"
#include "tools/kuiper_bench_scenarios.h"
#include "tools/tool_args.h"

namespace kuiper::tools {

struct Scenario {
  const char* name;
  const char* batches;  // what --batch is when it is not given
  const char* prompts;  // the same of --prompt-tokens
  const char* contexts;
  bool needs_model;
};

// --scenario; an error as well when an option is given that the scenario does not read.
StatusOr<Scenario> ParseScenario(const Args& args);
StatusOr<Workload> ParseWorkload(const Args& args, const Scenario& scenario);
// Of --scenario memory.
StatusOr<MemoryLoad> ParseLoad(const Args& args, const Workload& workload);
StatusOr<AttentionKind> ParseAttention(const Args& args);

}  // namespace kuiper::tools
