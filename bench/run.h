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

// What a step needs of the machine.
struct Work {
  double bytes = 0;  // read; 0: nobody counts them
  double flops = 0;  // multiply-adds count as two; 0: nobody counts them
};

// A step, and what the machine reached next to it. Shares are parts of 1, of pairs: the time that
// memory alone and arithmetic alone would need, and the longer of both, which is the roof.
struct Measurement {
  Work work;
  Spread seconds;          // of a step
  Spread bandwidth, peak;  // bytes and FLOP per second
  Spread of_memory, of_arithmetic, of_roof;
  std::optional<double> joules;  // of a step

  double bytes_per_second() const { return work.bytes / seconds.median; }
  double flops_per_second() const { return work.flops / seconds.median; }
};

// `run(n)` runs n steps and returns the seconds they took. There are `groups` of `group` steps,
// with bursts before and after each; one more group goes first and is not counted.
StatusOr<Measurement> Measure(Machine& machine, const Work& work, int groups, int group,
                              const std::function<StatusOr<double>(int n)>& run);
// Groups as a workload asks for them: short ones between bursts, else one after the other as in
// real use.
StatusOr<Measurement> MeasureSteps(Machine& machine, const Work& work, const Workload& workload,
                                   const std::function<Status(int n)>& steps);
// Columns of a measurement: the rates that are counted, and their shares of the machine's.
void AddRates(const Measurement& m, Line* line);
// Joules of a token, where the board tells; a step makes so many.
void AddEnergy(const Measurement& m, double tokens, Line* line);

// A row of the rates.
struct Row {
  std::string phase;  // "prefill" or "decode"
  int tokens = 0;     // prompt length, or context at the start of decoding
  int batch = 1;
  Measurement m;

  double tokens_per_second() const;
};

// The smallest value that so large a share of them does not exceed.
double Percentile(std::vector<double> values, double share);

// Prints what computes and how, and keeps it as facts.
void PrintDevice(const Engine& engine, Report* report);

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

// "16", or "row" of a contiguous cache.
std::string PageName(bool paged, int page_size);

// Rows that need more pages than the engine has are left out with a line on stderr; `on_row` gets
// the others as they come.
Status MeasureRows(Engine& engine, Machine& machine, const Workload& workload,
                   const std::function<void(const Row&)>& on_row);

}  // namespace kuiper::tools
