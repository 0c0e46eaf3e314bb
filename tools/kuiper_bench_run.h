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
  int steps = 16, repetitions = 3;
  int chunk = 512;  // tokens of one prefill step

  // Tokens of a step at most: the chunk, or more, so that sequences that decode leave half of it.
  int StepTokens() const;
  // Tokens that each of `batch` sequences of `context` tokens generates before its measurement
  // ends, the first ones already while the prompts of the others are computed.
  int NewTokens(int context, int batch) const;
  // Tokens of such a sequence in the end.
  int TokensOf(int context, int batch) const { return context + NewTokens(context, batch); }
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
StatusOr<Reading> MeasureReading(Machine& machine, double bytes, const Workload& workload,
                                 const std::function<Status(int n)>& steps);

double Median(std::vector<double> values);
// The smallest value that so large a share of them does not exceed.
double Percentile(std::vector<double> values, double share);

Request MakeBenchRequest(const Engine& engine, int tokens, int new_tokens, int seed);

// Sequences that decode together.
struct Decoding {
  std::vector<int64_t> ids;
  int64_t generated = 0;  // tokens of all of them when the last one had its first
};

// Adds the requests and steps until each has its first token.
StatusOr<Decoding> StartDecoding(Engine& engine, std::vector<Request> requests);
// Runs that many steps; kInternal unless each gives every sequence a token and ends none.
Status StepAll(Engine& engine, const Decoding& sequences, int steps);
void AbortAll(Engine& engine, const Decoding& sequences);

// Rows that need more pages than the engine has are left out with a line on stderr.
StatusOr<std::vector<Row>> MeasureRows(Engine& engine, Machine& machine, const Workload& workload);

}  // namespace kuiper::tools
