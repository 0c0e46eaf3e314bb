// What the flags of kuiper_bench ask for. Errors are kInvalidArgument.
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

// What --scenario names.
struct Scenario {
  const char* name;
  std::vector<int> batches;  // what --batch is when it is not given
  std::vector<int> prompts;  // the same of --prompt-tokens
  std::vector<int> contexts;
  bool needs_model;
};

struct BenchOptions {
  BenchOptions();

  const Scenario* scenario;
  std::string invent;  // a config.json; "": the model of the command line
  EngineConfig config;
  Workload workload;
  MemoryLoad load;
  ServeOptions serve;
  std::vector<int> sides = {512};  // of pictures
  std::string csv, json, text;
  std::string compare;    // an earlier report; "": none
  double tolerance = 10;  // percent
  std::string host_root;  // stands before /proc and /sys
  std::optional<std::string> tokenizer;

  bool Is(std::string_view name) const { return scenario->name == name; }
};

// The flags, whose values go to `options`.
std::vector<Flag> BenchFlags(BenchOptions& options);
// Checks what was given, and gives the workload the lists that were not.
Status FinishOptions(const ParsedArgs& args, BenchOptions* options);

}  // namespace kuiper::tools
