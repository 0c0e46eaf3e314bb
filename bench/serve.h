// Measures a server under a load of requests that arrive at scheduled times, and its cost compared
// with the engine by itself.
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
  std::string url;  // address of a running server; "": start one within this process
  LoadSpec load;
  double ttft_slo = 0, itl_slo = 0;  // milliseconds; 0: no limit
};

// Runs the load against the server at `url`.
Status BenchServe(const ServeOptions& options, Report* report);
// Runs the load against a server of this model in this process, which computes up to `sequences`
// requests at a time.
Status BenchServe(ServeOptions options, EngineConfig config, OpenedModel model, int sequences,
                  Report* report);

// Measures the tokens per second of `batches` sequences while all of them decode: by the engine
// itself and through a server and its clients, alternating. Reports medians, and the median of the
// pairs' ratios. The last column uses the CPU time of the engine's thread, which other programs
// disturb less.
Status BenchServerCost(EngineConfig config, OpenedModel model, const Workload& workload,
                       Report* report);

// Reports counts and percentiles of the load, and all calls.
Status ReportLoad(const ServeOptions& options, const std::vector<CallTimes>& calls, Report* report);

}  // namespace kuiper::tools
