// What a server does under a load of requests that come when they come, and what it costs beside
// the engine alone.
#pragma once

#include <string>
#include <vector>

#include "bench/client.h"
#include "bench/load.h"
#include "bench/report.h"
#include "bench/run.h"
#include "kuiper/base/status.h"
#include "kuiper/command_line/args.h"
#include "kuiper/engine/engine.h"
#include "kuiper/model/opened_model.h"

namespace kuiper::tools {

struct ServeOptions {
  std::string url;  // of a server that runs; "": one within this process
  LoadSpec load;
  double ttft_slo = 0, itl_slo = 0;  // milliseconds; 0: any
};

// The load against the server at `url`.
Status BenchServe(const ServeOptions& options, Report* report);
// The same against a server of this model, in this process. Takes `sequences` requests at a time.
Status BenchServe(ServeOptions options, EngineConfig config, OpenedModel model, int sequences,
                  Report* report);

// Tokens per second of `batches` sequences with all of them decoding: of the engine by itself and
// through a server and its clients, in turns. Medians, and the median of the pairs' ratios; the
// last column is that of the CPU time of the engine's thread, which other programs disturb less.
Status BenchServerCost(EngineConfig config, OpenedModel model, const Workload& workload,
                       Report* report);

// Counts and percentiles of what happened, and all calls.
Status ReportLoad(const ServeOptions& options, const std::vector<CallTimes>& calls, Report* report);

}  // namespace kuiper::tools
