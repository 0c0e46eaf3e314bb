// The measurements of kuiper_bench: one row per prompt length, and per context and batch size.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "tools/kuiper_bench_machine.h"

namespace kuiper::tools {

struct Workload {
  std::vector<int> prompts, batches, contexts;
  int steps = 0, repetitions = 0, threads = 0;
  int chunk = 0;  // tokens of one prefill step

  // Tokens of a sequence that begins with `context` tokens.
  int TokensOf(int context) const;
  int LongestContext() const;
  int LargestBatch() const;
};

struct Row {
  std::string phase;  // "prefill" or "decode"
  int tokens = 0;     // prompt length, or context at the start of decoding
  int batch = 1;
  double milliseconds = 0;  // of the prompt, or of one step
  double tokens_per_second = 0;
  double rate = 0;       // GFLOP/s, or GB/s of weights, keys and values
  double yardstick = 0;  // of the machine, in the same unit; 0 = not known
  double ratio = 0;
};

// Steps that read memory, against the bandwidth of the machine next to them: medians.
struct Reading {
  double seconds = 0;              // of a step
  double rate = 0, bandwidth = 0;  // bytes per second
  double ratio = 0;
};

// `steps(n)` runs n steps, which read `bytes` each. The first group is not counted.
Reading MeasureReading(Machine& machine, double bytes, const Workload& workload,
                       const std::function<void(int n)>& steps);

double Median(std::vector<double> values);

Request MakeBenchRequest(const Engine& engine, int tokens, int new_tokens, int seed);

// Adds the requests and steps until each has its first token.
StatusOr<std::vector<int64_t>> StartDecoding(Engine& engine, std::vector<Request> requests);
void AbortAll(Engine& engine, const std::vector<int64_t>& ids);

// Rows that need more pages than the engine has are left out with a line on stderr.
StatusOr<std::vector<Row>> MeasureRows(Engine& engine, Machine& machine, const Workload& workload);

}  // namespace kuiper::tools
