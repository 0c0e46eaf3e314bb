// What a server does under a load of requests that come when they come, and what it costs beside
// the engine alone.
#pragma once

#include <string>
#include <vector>

#include "demo/args.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/model/opened_model.h"
#include "tools/kuiper_bench_client.h"
#include "tools/kuiper_bench_load.h"
#include "tools/kuiper_bench_run.h"

namespace kuiper::tools {

struct ServeOptions {
  std::string url;  // of a server that runs; "": one within this process
  LoadSpec load;
  double ttft_slo = 0, itl_slo = 0;  // milliseconds; 0: any
  std::string json, svg;             // files; "": none
};

// The load against the server at `url`.
Status BenchServe(const ServeOptions& options);
// The same against a server of this model, in this process. Takes `sequences` requests at a time.
Status BenchServe(ServeOptions options, EngineConfig config, OpenedModel model, int sequences);

// Tokens per second of `batches` sequences with all of them decoding: of the engine by itself and
// through a server and its clients, in turns. Medians, and the median of the pairs' ratios; the
// last column is that of the CPU time of the engine's thread, which other programs disturb less.
Status BenchServerCost(EngineConfig config, OpenedModel model, const Workload& workload);

// Counts and percentiles of what happened; prints a table and writes the files.
Status ReportLoad(const ServeOptions& options, const std::vector<CallTimes>& calls);

}  // namespace kuiper::tools
