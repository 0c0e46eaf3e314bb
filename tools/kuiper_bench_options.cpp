#include "tools/kuiper_bench_options.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tools/tool_args.h"

namespace kuiper::tools {
namespace {

const Scenario kScenarios[] = {{"rates", {1, 2, 4, 8}, {128, 512}, {16}, true},
                               {"throughput", {1, 2, 4, 8, 16, 32, 64}, {16}, {16}, true},
                               {"prefix", {1}, {2000}, {16}, true},
                               {"cascade", {8, 32}, {2000}, {16}, true},
                               {"latency", {2}, {512}, {128}, true},
                               {"attention", {1, 8, 32}, {16}, {1024, 8192}, true},
                               {"layout", {1}, {16}, {512, 2048, 8192, 32768}, true},
                               {"turns", {1}, {16}, {16}, true},
                               {"vision", {1}, {16}, {16}, true},
                               {"memory", {8}, {16}, {16}, false},
                               {"scheduler", {1, 16, 64, 256}, {16}, {16}, false}};

Status Bad(const std::string& message, const std::string& hint = "") {
  return Status(StatusCode::kInvalidArgument, message, hint);
}

NamedValues OneScenario(const Scenario** chosen) {
  NamedValues named;
  for (const Scenario& scenario : kScenarios) named.names.push_back(scenario.name);
  named.set = [chosen](size_t i) { *chosen = &kScenarios[i]; };
  named.get = [chosen] { return static_cast<size_t>(*chosen - kScenarios); };
  return named;
}

demo::Flag AttentionFlag(AttentionKind* kind) {
  using enum AttentionKind;
  return demo::MakeFlag(
      "attention",
      OneOf(kind, {{"auto", kAuto}, {"flash1", kFlash1}, {"flash2", kFlash2}, {"mha", kMha}}),
      "attention kernel");
}

// A flag, and the scenarios that read it.
struct FlagRow {
  demo::Flag flag;
  std::vector<std::string> scenarios;
};

// Of scenarios without an engine, and of the report.
std::vector<FlagRow> OtherRows(BenchOptions& o) {
  using demo::MakeFlag;
  const std::vector<std::string> all, rates = {"rates"}, memory = {"memory"};
  return {
      {MakeFlag("requests", &o.load.requests, "memory: requests of a load", {1, 100'000}), memory},
      {MakeFlag("max-context", &o.load.max_context, "memory: tokens of a sequence", {2, 1 << 20}),
       memory},
      {MakeFlag("csv", &o.csv, "write the rows; memory: a line per step", {}, "FILE"), all},
      {MakeFlag("text", &o.text, "measure the tokenizer of MODEL on this text instead", {}, "FILE"),
       rates},
      {MakeFlag("tokenizer", &o.tokenizer, "with --text: this tokenizer", {}, "PATH"), rates},
      {MakeFlag("json", &o.json, "write the report", {}, "FILE"), all},
      {MakeFlag("compare", &o.compare, "an earlier report: print what became of each row", {},
                "FILE.json"),
       all},
      {MakeFlag("tolerance", &o.tolerance, "--compare fails for rows slower by more percent",
                {.min = 0, .max = 99}),
       all},
      {MakeFlag("host-root", &o.host_root, "read /proc and /sys of the machine below here", {},
                "FOLDER"),
       all},
  };
}

std::vector<FlagRow> Rows(BenchOptions& o) {
  using demo::MakeFlag;
  using Names = std::vector<std::string>;
  const Names all;
  const Names engine = {"rates", "throughput", "prefix", "cascade", "latency", "turns"};
  const Names heads = {"rates",   "throughput", "prefix", "cascade",
                       "latency", "attention",  "layout", "turns"};
  const Names model = {"rates",     "throughput", "prefix", "cascade", "latency",
                       "attention", "layout",     "vision", "turns"};
  const Limits counts = {1, 1'000'000};
  EngineConfig& e = o.config;
  Workload& w = o.workload;
  std::vector<FlagRow> rows = {
      {MakeFlag("scenario", OneScenario(&o.scenario), "what is measured"), all},
      {MakeFlag("invent", &o.invent, "random weights in these shapes", {}, "CONFIG.json"), all},
      {TypeFlag(&e.dtype, "type of the weights (default: as stored or configured)"), model},
      {HeadTypeFlag(&e.int8_head), heads},
      {WeightsFlag(&e.weight_storage), model},
      {KvFormatFlag(&e.kv_format), heads},
      {DeviceFlag(&e.device), model},
      {MakeFlag("prompt-tokens", &w.prompts,
                "prefill lengths (default: 128,512); prefix, cascade: system prompts (2000)",
                counts),
       {"rates", "prefix", "cascade", "latency", "turns"}},
      {MakeFlag("batch", &w.batches,
                "sequences together (default: 1,2,4,8; by scenario), memory: the rows", counts),
       {"rates", "throughput", "cascade", "attention", "layout", "memory", "scheduler", "turns"}},
      {MakeFlag(
           "context", &w.contexts,
           "tokens before decoding starts (default: 16; attention: 1024,8192; layout: to 32768)",
           counts),
       {"rates", "throughput", "latency", "attention", "layout", "turns"}},
      {MakeFlag("decode-steps", &w.steps, "steps per repetition", {4, 4096}),
       {"rates", "throughput", "cascade", "latency", "attention", "layout", "turns"}},
      {MakeFlag("latency-target", &e.latency_target_ms,
                "latency: milliseconds of a step with a prompt", {.max = 1e6, .above_min = true}),
       {"latency"}},
      {MakeFlag("repetitions", &w.repetitions, "how often each row is measured", {1, 100}), model},
      {MakeFlag("threads", &e.ops.num_threads, "CPU threads (default: one per core)", {0, 1024}),
       model},
      {MakeFlag("chunk", &w.chunk, "tokens of one prefill step", {1, 1 << 20}), engine},
      {MakeFlag("tune", &e.ops.tune,
                "CUDA: time the library's matrix products first and keep the choice, for all runs"),
       engine},
      {AttentionFlag(&e.ops.attention), model},
      {MakeFlag("image-side", &o.sides, "vision: pixels of a side (default: 512)", {1, 1 << 14}),
       {"vision"}},
      {MakeFlag("paged-attention", &e.paged, "KV cache in pages, or contiguous"),
       {"rates", "throughput", "latency", "turns"}},
      {MakeFlag("block-size", &o.load.page_sizes, "tokens per page, one run for each of the list",
                {.min = 1, .max = 256, .power_of_two = true}),
       {"rates", "attention", "layout", "memory"}},
      {MakeFlag("cuda-graph", &e.use_graph, "recorded decode steps (the CPU's never are)"),
       {"rates", "throughput", "cascade", "latency"}},
  };
  for (FlagRow& row : OtherRows(o)) rows.push_back(std::move(row));
  return rows;
}

// Every flag that is given must be read.
Status CheckRead(const demo::ParsedArgs& args, BenchOptions& options) {
  for (const auto& [flag, names] : Rows(options)) {
    const bool is_read = names.empty() || std::find(names.begin(), names.end(),
                                                    options.scenario->name) != names.end();
    if (is_read || !args.given(flag.name)) continue;
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    return Bad((args.on(flag.name) ? "--" : "--no-") + flag.name + " goes with --scenario " + list);
  }
  return OkStatus();
}

}  // namespace

BenchOptions::BenchOptions() : scenario(kScenarios) {
  config.need_tokenizer = false;
  config.use_graph = true;
}

std::vector<demo::Flag> BenchFlags(BenchOptions& options) {
  std::vector<demo::Flag> flags;
  for (FlagRow& row : Rows(options)) flags.push_back(std::move(row.flag));
  return flags;
}

Status FinishOptions(const demo::ParsedArgs& args, BenchOptions* options) {
  KU_RETURN_IF_ERROR(CheckRead(args, *options));
  const Scenario& scenario = *options->scenario;
  const std::string usage = std::string("usage: ") + kBenchUsage;
  if (!scenario.needs_model && (!options->invent.empty() || !args.positionals.empty())) {
    return Bad(std::string("--scenario ") + scenario.name + " runs no model", usage);
  }
  if (args.given("tolerance") && options->compare.empty()) {
    return Bad("--tolerance goes with --compare");
  }
  const bool reads_text = !options->text.empty();
  if (scenario.needs_model && !reads_text && options->invent.empty() == args.positionals.empty()) {
    return Bad("give either MODEL or --invent CONFIG.json", usage);
  }
  if (options->Is("turns") &&
      !(options->json.empty() && options->csv.empty() && options->compare.empty())) {
    return Bad("--scenario turns makes no report");
  }
  Workload& w = options->workload;
  if (!args.given("batch")) w.batches = scenario.batches;
  if (!args.given("prompt-tokens")) w.prompts = scenario.prompts;
  if (!args.given("context")) w.contexts = scenario.contexts;
  MemoryLoad& load = options->load;
  load.rows = w.batches.front();
  if (options->Is("memory") &&
      (w.batches.size() > 1 || int64_t{load.rows} * load.max_context > int64_t{1} << 30)) {
    return Bad("--scenario memory takes one --batch and at most 2^30 tokens of memory");
  }
  return OkStatus();
}

}  // namespace kuiper::tools
