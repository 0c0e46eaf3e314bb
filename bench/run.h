// The measurements of kuiper_bench: one row per prompt length, and per context and batch size.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "bench/report.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"

namespace kuiper::tools {

struct Workload {
  std::vector<int> prompts, batches, contexts;
  int steps = 16, repetitions = 3;
  int chunk = 512;  // tokens of one prefill step

  // Returns the maximum tokens of a step: the chunk, or more, so that decode rows take at most half
  // of it.
  int StepTokens() const;
  // Returns the tokens that each of `batch` sequences of `context` tokens generates until its
  // measurement ends. The first ones are generated while the prompts of the others are computed.
  int NewTokens(int context, int batch) const;
  // Returns the final length of such a sequence, in tokens.
  int TokensOf(int context, int batch) const { return context + NewTokens(context, batch); }
  int LongestContext() const;
  int LargestBatch() const;
};

// What a step requires from the machine.
struct Work {
  double bytes = 0;  // bytes read; 0: not counted
  double flops = 0;  // multiply-adds count as two; 0: not counted
};

// A step, and what the machine reached right before and after it. Shares are from 0 to 1 and
// computed per pair. They compare the step with the time that memory alone and arithmetic alone
// would need, and with the longer of both, which is the roof.
struct Measurement {
  Work work;
  Spread seconds;          // seconds per step
  Spread bandwidth, peak;  // bytes and FLOP per second
  Spread of_memory, of_arithmetic, of_roof;
  std::optional<double> joules;  // joules per step

  double bytes_per_second() const { return work.bytes / seconds.median; }
  double flops_per_second() const { return work.flops / seconds.median; }
};

// `run(n)` runs n steps and returns the seconds they took. There are `groups` of `group` steps,
// with bursts before and after each. One more group runs first and is not counted.
StatusOr<Measurement> Measure(Machine& machine, const Work& work, int groups, int group,
                              const std::function<StatusOr<double>(int n)>& run);
// Measures groups as the workload specifies: short ones between bursts, or consecutive ones as in
// real use.
StatusOr<Measurement> MeasureSteps(Machine& machine, const Work& work, const Workload& workload,
                                   const std::function<Status(int n)>& steps);
// Adds the measured rates as columns, and their shares of the machine's rates.
void AddRates(const Measurement& m, Line* line);
// Adds joules per token, if the board measures its power; `tokens`: tokens of a step.
void AddEnergy(const Measurement& m, double tokens, Line* line);

// A row of the rates.
struct Row {
  std::string phase;  // "prefill" or "decode"
  int tokens = 0;     // prompt length, or context at the start of decoding
  int batch = 1;
  Measurement m;

  double tokens_per_second() const;
};

// Returns the smallest value that is at least as large as this share of the values.
double Percentile(std::vector<double> values, double share);

// Prints the device and the kernels in use, and keeps them as facts.
void PrintDevice(const Engine& engine, Report* report);

Request MakeBenchRequest(const Engine& engine, int tokens, int new_tokens, int seed);

// Sequences that decode in the same steps.
struct Decoding {
  std::vector<int64_t> ids;
  int64_t generated = 0;  // tokens of all sequences when the last one got its first token
};

// Adds the requests and runs steps until each has its first token.
StatusOr<Decoding> StartDecoding(Engine& engine, std::vector<Request> requests);
// Runs `steps` steps; kInternal unless each step gives every sequence a token and ends none.
Status StepAll(Engine& engine, const Decoding& sequences, int steps);
void AbortAll(Engine& engine, const Decoding& sequences);

// Returns "16", or "row" for a contiguous cache.
std::string PageName(bool paged, int page_size);

// Leaves out rows that need more pages than the engine has, with a line on stderr. `on_row` gets
// the other rows as they are measured.
Status MeasureRows(Engine& engine, Machine& machine, const Workload& workload,
                   const std::function<void(const Row&)>& on_row);

}  // namespace kuiper::tools
