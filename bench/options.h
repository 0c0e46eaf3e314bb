// The values of kuiper_bench's flags. Errors are kInvalidArgument.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run.h"
#include "bench/scenarios.h"
#include "bench/serve.h"
#include "kuiper/base/status.h"
#include "kuiper/command_line/args.h"
#include "kuiper/engine/engine.h"

namespace kuiper::tools {

constexpr const char* kBenchUsage =
    "kuiper_bench [MODEL | --invent CONFIG.json | --url URL] [options]";

// A value of --scenario.
struct Scenario {
  const char* name;
  std::vector<int> batches;  // default of --batch
  std::vector<int> prompts;  // default of --prompt-tokens
  std::vector<int> contexts;
  bool needs_model;
};

struct BenchOptions {
  BenchOptions();

  const Scenario* scenario;
  // A config.json for a model with random weights; "": the model of the command line.
  std::string invent;
  EngineConfig config;
  Workload workload;
  MemoryLoad load;
  ServeOptions serve;
  std::vector<int> sides = {512};  // side lengths of square images, in pixels
  std::string csv, json, text;
  std::string compare;    // an earlier report; "": none
  double tolerance = 10;  // percent
  std::string host_root;  // prefix of /proc and /sys
  std::optional<std::string> tokenizer;

  bool Is(std::string_view name) const { return scenario->name == name; }
};

// Returns the flags, whose values go to `options`.
std::vector<Flag> BenchFlags(BenchOptions& options);
// Checks the given flags, and sets the workload's lists that were not given to their defaults.
Status FinishOptions(const ParsedArgs& args, BenchOptions* options);

}  // namespace kuiper::tools
