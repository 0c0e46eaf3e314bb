#include "bench/options.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kuiper/base/errors.h"
#include "tools/tool_args.h"

namespace kuiper::tools {
namespace {

const Scenario kScenarios[] = {{"rates", {1, 2, 4, 8}, {128, 512}, {16}, true},
                               {"throughput", {1, 2, 4, 8, 16, 32, 64}, {16}, {16}, true},
                               {"prefix", {1}, {2000}, {16}, true},
                               {"cascade", {8, 32}, {2000}, {16}, true},
                               {"latency", {2}, {512}, {128}, true},
                               {"serve", {8}, {16}, {16}, true},
                               {"server-cost", {1, 8, 32}, {16}, {16}, true},
                               {"attention", {1, 8, 32}, {16}, {1024, 8192}, true},
                               {"layout", {1}, {16}, {512, 2048, 8192, 32768}, true},
                               {"turns", {1}, {16}, {16}, true},
                               {"vision", {1}, {16}, {16}, true},
                               {"memory", {8}, {16}, {16}, false},
                               {"scheduler", {1, 16, 64, 256}, {16}, {16}, false}};

NamedValues OneScenario(const Scenario** chosen) {
  NamedValues named;
  for (const Scenario& scenario : kScenarios) named.names.push_back(scenario.name);
  named.set = [chosen](size_t i) { *chosen = &kScenarios[i]; };
  named.get = [chosen] { return static_cast<size_t>(*chosen - kScenarios); };
  return named;
}

// Returns "rates, throughput, prefix".
std::string ScenarioNames() {
  std::string names;
  for (const Scenario& scenario : kScenarios)
    names += (names.empty() ? "" : ", ") + std::string(scenario.name);
  return names;
}

Flag AttentionFlag(AttentionKind* kind) {
  using enum AttentionKind;
  return MakeFlag(
      "attention",
      OneOf(kind, {{"auto", kAuto}, {"flash1", kFlash1}, {"flash2", kFlash2}, {"mha", kMha}}),
      "attention kernel");
}

// A flag, and the scenarios that read it.
struct FlagRow {
  Flag flag;
  std::vector<std::string> scenarios;
};

std::vector<std::string> With(std::vector<std::string> names,
                              const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

// Flags of --scenario serve: the load, and the files it writes.
std::vector<FlagRow> ServeRows(BenchOptions& o) {
  const std::vector<std::string> serve = {"serve"};
  const Limits any = {.max = 1e9};
  ServeOptions& s = o.serve;
  LoadSpec& load = s.load;
  return {
      {MakeFlag("url", &s.url, "a server that runs (default: one in this process)", {}, "URL"),
       serve},
      {MakeFlag("request-rate", &load.request_rate,
                "requests a second, at random times; 0 = all at once", any),
       serve},
      {MakeFlag("duration", &load.duration, "seconds in which requests are sent, 0 = any", any),
       serve},
      {MakeFlag("warm-up", &load.warm_up, "requests before those that count", {0, 1e6}), serve},
      {MakeFlag("concurrency", &load.concurrency,
                "requests at the same time; others wait, which counts; 0 = any", {0, 1e6}),
       serve},
      {MakeFlag("seed", &load.seed, "of the times and the lengths"), serve},
      {MakeFlag("prompt-lengths", &load.prompt_lengths,
                "tokens: 128, uniform:64,256 or lognormal:MEDIAN,SIGMA,MAX", {}, "LENGTHS"),
       serve},
      {MakeFlag("answer-lengths", &load.answer_lengths, "the same of answers", {}, "LENGTHS"),
       serve},
      {MakeFlag("input", &load.input, "send the lines of this batch file instead", {}, "FILE"),
       serve},
      {MakeFlag("ttft-slo", &s.ttft_slo, "milliseconds to the first token that are good, 0 = any",
                any),
       serve},
      {MakeFlag("itl-slo", &s.itl_slo,
                "the same of the mean time between an answer's tokens, 0 = any", any),
       serve},
  };
}

// Flags of scenarios without an engine, and of the report.
std::vector<FlagRow> OtherRows(BenchOptions& o) {
  using Names = std::vector<std::string>;
  const Names all, rates = {"rates"}, memory = {"memory"};
  const Names reports = {"rates",  "throughput", "prefix", "cascade",   "latency", "attention",
                         "layout", "vision",     "memory", "scheduler", "serve",   "server-cost"};
  return {
      {MakeFlag("requests", &o.load.requests, "requests of a load", {1, 100'000}),
       {"memory", "serve"}},
      {MakeFlag("max-context", &o.load.max_context, "memory: tokens of a sequence", {2, 1 << 20}),
       memory},
      {MakeFlag("csv", &o.csv, "write the rows; memory: a line per step", {}, "FILE"), reports},
      {MakeFlag("text", &o.text, "measure the tokenizer of MODEL on this text instead", {}, "FILE"),
       rates},
      {MakeFlag("tokenizer", &o.tokenizer, "with --text and with servers: this tokenizer", {},
                "PATH"),
       {"rates", "serve", "server-cost"}},
      {MakeFlag("json", &o.json, "write the report", {}, "FILE"), reports},
      {MakeFlag("compare", &o.compare, "an earlier report: print what became of each row", {},
                "FILE.json"),
       reports},
      {MakeFlag("tolerance", &o.tolerance, "--compare fails for rows slower by more percent",
                {.min = 0, .max = 99}),
       reports},
      {MakeFlag("host-root", &o.host_root, "read /proc and /sys of the machine below here", {},
                "FOLDER"),
       With(reports, {"turns"})},
  };
}

std::vector<FlagRow> EngineRows(BenchOptions& o) {
  using Names = std::vector<std::string>;
  const Names all;
  const Names rates = {"rates", "throughput", "prefix", "cascade", "latency", "turns"};
  const Names engine = With(rates, {"serve", "server-cost"});
  const Names heads = With(engine, {"attention", "layout"});
  const Names model = With(heads, {"vision"});
  const Limits counts = {1, 1'000'000};
  EngineConfig& e = o.config;
  Workload& w = o.workload;
  return {
      {MakeFlag("scenario", OneScenario(&o.scenario), "what is measured: " + ScenarioNames(), {},
                "NAME"),
       all},
      {MakeFlag("invent", &o.invent, "random weights in these shapes", {}, "CONFIG.json"), all},
      {TypeFlag(&e.dtype, "type of the weights (default: as stored or configured)"), model},
      {HeadTypeFlag(&e.int8_head), heads},
      {ActivationTypeFlag(&e.int8_activations), heads},
      {WeightsFlag(&e.weight_storage), model},
      {KvFormatFlag(&e.kv_format), heads},
      {DeviceFlag(&e.device), model},
      {MakeFlag("prompt-tokens", &w.prompts,
                "prefill lengths (default: 128,512); prefix, cascade: system prompts (2000)",
                counts),
       {"rates", "prefix", "cascade", "latency", "turns"}},
      {MakeFlag("batch", &w.batches,
                "sequences together (default: 1,2,4,8; by scenario), memory: the rows", counts),
       {"rates", "throughput", "cascade", "attention", "layout", "memory", "scheduler", "turns",
        "serve", "server-cost"}},
      {MakeFlag(
           "context", &w.contexts,
           "tokens before decoding starts (default: 16; attention: 1024,8192; layout: to 32768)",
           counts),
       {"rates", "throughput", "latency", "attention", "layout", "turns"}},
      {MakeFlag("decode-steps", &w.steps, "steps per repetition", {4, 4096}),
       {"rates", "throughput", "cascade", "latency", "attention", "layout", "turns",
        "server-cost"}},
      {MakeFlag("latency-target", &e.latency_target_ms,
                "latency: milliseconds of a step with a prompt", {.max = 1e6, .above_min = true}),
       {"latency"}},
      {MakeFlag("repetitions", &w.repetitions, "how often each row is measured", {1, 100}), model},
      {MakeFlag("threads", &e.ops.num_threads, "CPU threads (default: one per core)", {0, 1024}),
       model},
      {CpuTargetFlag(&e.ops.cpu_target), model},
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
}

std::vector<FlagRow> Rows(BenchOptions& o) {
  std::vector<FlagRow> rows = EngineRows(o);
  for (FlagRow& row : OtherRows(o)) rows.push_back(std::move(row));
  for (FlagRow& row : ServeRows(o)) rows.push_back(std::move(row));
  return rows;
}

// Refuses flags that the scenario does not use.
Status CheckRead(const ParsedArgs& args, BenchOptions& options) {
  for (const auto& [flag, names] : Rows(options)) {
    const bool is_read = names.empty() || std::find(names.begin(), names.end(),
                                                    options.scenario->name) != names.end();
    if (is_read || !args.given(flag.name)) continue;
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    return InvalidArgument((args.on(flag.name) ? "--" : "--no-") + flag.name +
                           " goes with --scenario " + list);
  }
  return OkStatus();
}

}  // namespace

BenchOptions::BenchOptions() : scenario(kScenarios) {
  config.need_tokenizer = false;
  config.use_graph = true;
}

std::vector<Flag> BenchFlags(BenchOptions& options) {
  std::vector<Flag> flags;
  for (FlagRow& row : Rows(options)) flags.push_back(std::move(row.flag));
  return flags;
}

Status FinishOptions(const ParsedArgs& args, BenchOptions* options) {
  KU_RETURN_IF_ERROR(CheckRead(args, *options));
  const Scenario& scenario = *options->scenario;
  const std::string usage = std::string("usage: ") + kBenchUsage;
  if (!scenario.needs_model && (!options->invent.empty() || !args.positionals.empty())) {
    return InvalidArgument(std::string("--scenario ") + scenario.name + " runs no model", usage);
  }
  if (args.given("tolerance") && options->compare.empty()) {
    return InvalidArgument("--tolerance goes with --compare");
  }
  const bool reads_text = !options->text.empty(), asks = !options->serve.url.empty();
  if (asks && !(options->invent.empty() && args.positionals.empty())) {
    return InvalidArgument("--url is a server with a model of its own", usage);
  }
  if (scenario.needs_model && !reads_text && !asks &&
      options->invent.empty() == args.positionals.empty()) {
    return InvalidArgument("give either MODEL or --invent CONFIG.json", usage);
  }
  if (!options->invent.empty() && options->config.weight_storage == WeightStorage::kMapped) {
    return InvalidArgument("--weights mapped needs a file: the weights of --invent have none");
  }
  Workload& w = options->workload;
  if (!args.given("batch")) w.batches = scenario.batches;
  if (!args.given("prompt-tokens")) w.prompts = scenario.prompts;
  if (!args.given("context")) w.contexts = scenario.contexts;
  options->serve.load.requests = options->load.requests;
  if (options->tokenizer.has_value()) options->config.tokenizer_path = *options->tokenizer;
  MemoryLoad& load = options->load;
  load.rows = w.batches.front();
  if (options->Is("memory") &&
      (w.batches.size() > 1 || int64_t{load.rows} * load.max_context > int64_t{1} << 30)) {
    return InvalidArgument("--scenario memory takes one --batch and at most 2^30 tokens of memory");
  }
  return OkStatus();
}

}  // namespace kuiper::tools
