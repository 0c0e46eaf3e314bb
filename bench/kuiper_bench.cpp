// Measures prefill and decode speed against what the machine can do, for a model or for random
// weights in any shape. On the CPU, bursts measure the yardsticks (read bandwidth, peak
// multiply-add rate) right before and after each piece of work, because shared machines change
// speed from second to second. Ratios are medians of such pairs. On a GPU the read bandwidth is
// measured once. --scenario measures serving many sequences instead.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/host.h"
#include "bench/machine.h"
#include "bench/options.h"
#include "bench/report.h"
#include "bench/run.h"
#include "bench/scenarios.h"
#include "kuiper/base/append_file.h"
#include "kuiper/base/text.h"
#include "kuiper/engine/engine.h"
#include "tools/tool_args.h"

namespace kuiper::tools {
namespace {

// Chooses the largest pool that any row needs and that fits in memory; rows that need more are left
// out later.
Status ChoosePool(const Workload& w, int longest_prompt, const OpenedModel& model,
                  EngineConfig* config) {
  if (!config->paged) return OkStatus();
  const auto pages = [&](int tokens) {
    return (tokens + config->page_size - 1) / config->page_size;
  };
  std::vector<int> sizes = {pages(longest_prompt + 2)};
  for (const int context : w.contexts) {
    for (const int batch : w.batches) sizes.push_back(batch * pages(w.TokensOf(context, batch)));
  }
  std::sort(sizes.rbegin(), sizes.rend());
  Status status;
  for (const int size : sizes) {
    config->num_blocks = size;
    status = Engine::Plan(*config, model).status();
    if (status.code() != StatusCode::kResourceExhausted) return status;
  }
  return status;
}

StatusOr<OpenedModel> OpenModelOf(const BenchOptions& options) {
  return options.invent.empty() ? OpenModel(options.config.model_path)
                                : MakeRandomModel(options.invent);
}

StatusOr<std::unique_ptr<Engine>> CreateEngine(const BenchOptions& options, const Workload& w) {
  EngineConfig config = options.config;
  if (config.ops.tune && config.device.type != DeviceType::kCUDA) {
    return Status(StatusCode::kInvalidArgument, "--tune needs --device cuda:N");
  }
  config.use_graph = config.use_graph && config.device.type != DeviceType::kCPU;
  config.max_num_seqs = w.LargestBatch();
  config.max_num_batched_tokens = w.StepTokens();
  const int longest = *std::max_element(w.prompts.begin(), w.prompts.end());
  config.max_context = std::max(longest + 2, w.TokensOf(w.LongestContext(), w.LargestBatch()));
  KU_ASSIGN_OR_RETURN(OpenedModel model, OpenModelOf(options));
  if (const int limit = model.config.decoder.rope.max_position; config.max_context > limit) {
    return Status(StatusCode::kInvalidArgument,
                  "sequences grow to " + std::to_string(config.max_context) +
                      " tokens here, and the model's limit is " + std::to_string(limit),
                  "use a smaller --context, --prompt-tokens or --decode-steps");
  }
  KU_RETURN_IF_ERROR(ChoosePool(w, longest, model, &config));
  return Engine::Create(config, std::move(model));
}

// Makes the yardsticks for the engine's decode steps and prompts.
StatusOr<std::unique_ptr<Machine>> MakeMachine(const BenchOptions& options, const Engine& engine) {
  KU_ASSIGN_OR_RETURN(
      std::unique_ptr<Machine> machine,
      Machine::Make(engine.config().device, engine.weight_type(), engine.weight_bytes_per_token(),
                    engine.config().ops.num_threads));
  machine->MeasurePower(PowerMeter::Make(options.host_root));
  return machine;
}

void AddRow(const Engine& engine, const Row& row, Report* report) {
  const EngineConfig& config = engine.config();
  Line line;
  line.Key("phase", row.phase)
      .Key("tokens", row.tokens)
      .Key("batch", row.batch)
      .Key("page", PageName(config.paged, config.page_size))
      .Cost("ms", row.m.seconds.Times(1e3))
      .Figure("tokens_per_s", row.tokens_per_second());
  AddRates(row.m, &line);
  AddEnergy(row.m, row.phase == "prefill" ? row.tokens : row.batch, &line);
  report->Add(line);
}

// Reads the memory usage, and measures all rows. A run for each page size makes its own engine.
Status BenchRatesOf(const BenchOptions& options, Report* report) {
  const Workload& w = options.workload;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, CreateEngine(options, w));
  const int longest = *std::max_element(w.prompts.begin(), w.prompts.end());

  // Read the memory usage before the yardsticks allocate memory.
  KU_ASSIGN_OR_RETURN(const Completion warm_up,
                      engine->Generate(MakeBenchRequest(*engine, longest, 2, 0)));
  const size_t peak_resident = 1024 * ReadKey("/proc/self/status", "VmHWM:").value_or(0);
  const size_t kv_bytes = engine->kv_stats().bytes_touched;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine, MakeMachine(options, *engine));
  PrintDevice(*engine, report);
  KU_RETURN_IF_ERROR(
      MeasureRows(*engine, *machine, w, [&](const Row& row) { AddRow(*engine, row, report); }));
  report->Print(
      "memory after %d tokens: weights %.1f MB, KV touched %.1f MB, peak resident %.1f MB\n",
      warm_up.prompt_tokens + 2, static_cast<double>(engine->memory_plan().weight_bytes) / 1e6,
      static_cast<double>(kv_bytes) / 1e6, static_cast<double>(peak_resident) / 1e6);
  report->Set("yardsticks", machine->Describe());
  report->Set("weight_bytes", engine->memory_plan().weight_bytes);
  report->Set("kv_bytes_touched", kv_bytes);
  report->Set("peak_resident_bytes", peak_resident);
  return OkStatus();
}

Status BenchRates(BenchOptions options, Report* report) {
  for (const int page_size : options.load.page_sizes) {
    options.config.page_size = page_size;
    KU_RETURN_IF_ERROR(BenchRatesOf(options, report));
  }
  return OkStatus();
}

Status BenchInTurns(const BenchOptions& options) {
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                      CreateEngine(options, options.workload));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine, MakeMachine(options, *engine));
  BenchTurns(*engine, *machine, options.workload);
  return OkStatus();
}

Status BenchManySequences(const BenchOptions& options, Report* report) {
  Workload w = options.workload;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, CreateEngine(options, w));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine, MakeMachine(options, *engine));
  w.prompts.clear();
  PrintDevice(*engine, report);
  KU_RETURN_IF_ERROR(BenchThroughput(*engine, *machine, w, report));
  report->Set("yardsticks", machine->Describe());
  return OkStatus();
}

Status BenchWarmPrefix(BenchOptions options, Report* report) {
  Workload w = options.workload;
  for (int& tokens : w.prompts) tokens += kQuestionTokens;
  w.contexts = w.prompts;
  w.batches = {2};  // memory for a second sequence that shares no pages
  options.config.prefix_cache = true;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, CreateEngine(options, w));
  PrintDevice(*engine, report);
  return BenchPrefix(*engine, options.workload.prompts, w.repetitions, report);
}

Status BenchSharedPrompt(BenchOptions options, Report* report) {
  Workload w = options.workload;
  w.contexts.clear();
  for (const int tokens : w.prompts) w.contexts.push_back(tokens + kQuestionTokens);
  options.config.prefix_cache = true;
  options.config.cascade_attention = true;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> with, CreateEngine(options, w));
  options.config.cascade_attention = false;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> without, CreateEngine(options, w));
  PrintDevice(*with, report);
  return BenchCascade(*with, *without, w, report);
}

// Measures two users, with the throughput policy and with the latency policy.
Status BenchTwoUsers(BenchOptions options, Report* report) {
  Workload w = options.workload;
  const int longest = *std::max_element(w.prompts.begin(), w.prompts.end());
  for (int& tokens : w.contexts) tokens += w.steps + longest + 2;
  w.batches = {2};
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> throughput, CreateEngine(options, w));
  options.config.policy = SchedulingPolicy::kLatency;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> latency, CreateEngine(options, w));
  PrintDevice(*latency, report);
  return BenchLatency({"throughput", "latency"}, {throughput.get(), latency.get()},
                      options.workload, report);
}

// Runs scenarios that need a model's kernels but no engine.
Status BenchKernels(const BenchOptions& options, Report* report) {
  KU_ASSIGN_OR_RETURN(OpenedModel model, OpenModelOf(options));
  const EngineConfig& c = options.config;
  if (options.Is("vision")) {
    return BenchVision(std::move(model), c.device, c.ops, c.dtype, options.sides,
                       options.workload.repetitions, report);
  }
  KernelBench bench{.device = c.device,
                    .ops = c.ops,
                    .dtype = c.dtype,
                    .kv_format = c.kv_format,
                    .page_sizes = options.load.page_sizes,
                    .workload = options.workload};
  if (options.Is("layout")) {
    return BenchLayout(std::move(model), bench, {c.dtype, c.int8_head, c.int8_activations}, report);
  }
  // Without matrix products, no memory is reserved for them.
  bench.ops.determinism = Determinism::kStrict;
  return BenchAttention(model.config.decoder, bench, report);
}

// The server's own threads use the CPU time that the engine leaves.
Status BenchServerOf(BenchOptions options, Report* report) {
  if (!options.serve.url.empty()) return BenchServe(options.serve, report);
  if (!options.invent.empty() && !options.tokenizer.has_value()) {
    return Status(StatusCode::kInvalidArgument, "a server needs a tokenizer",
                  "--tokenizer names one, --invent has none");
  }
  KU_ASSIGN_OR_RETURN(OpenedModel model, OpenModelOf(options));
  options.config.max_num_batched_tokens = options.workload.chunk;
  options.config.use_graph = options.config.device.type != DeviceType::kCPU;
  if (options.Is("server-cost")) {
    return BenchServerCost(options.config, std::move(model), options.workload, report);
  }
  return BenchServe(options.serve, options.config, std::move(model),
                    options.workload.LargestBatch(), report);
}

Status Measure(const BenchOptions& options, Report* report) {
  if (options.Is("scheduler")) {
    return BenchScheduler(options.workload.batches, 1000, report);
  }
  if (options.Is("memory")) return BenchMemory(options.load, options.csv, report);
  if (!options.text.empty()) {
    return BenchTokenizer(options.tokenizer.value_or(options.config.model_path), options.text,
                          options.workload.repetitions, report);
  }
  if (options.Is("attention") || options.Is("layout") || options.Is("vision")) {
    return BenchKernels(options, report);
  }
  if (options.Is("serve") || options.Is("server-cost")) return BenchServerOf(options, report);
  if (options.Is("throughput")) return BenchManySequences(options, report);
  if (options.Is("latency")) return BenchTwoUsers(options, report);
  if (options.Is("prefix")) return BenchWarmPrefix(options, report);
  if (options.Is("cascade")) return BenchSharedPrompt(options, report);
  return BenchRates(options, report);
}

Status Run(const ParsedArgs& args, BenchOptions options) {
  KU_RETURN_IF_ERROR(FinishOptions(args, &options));
  if (!args.positionals.empty()) options.config.model_path = args.positionals[0];
  for (const std::string& path : {options.json, options.csv}) {
    if (!path.empty()) KU_RETURN_IF_ERROR(CheckWritable(path));
  }
  if (options.Is("turns")) return BenchInTurns(options);
  JsonNode old_rows;
  if (!options.compare.empty()) {
    KU_ASSIGN_OR_RETURN(old_rows, ReadRows(options.compare, options.scenario->name));
  }
  Report report(options.scenario->name);
  report.Set("version", Engine::Version());
  report.Set("machine", DescribeHost(options.host_root));
  const OtherLoad others(options.host_root);
  KU_RETURN_IF_ERROR(Measure(options, &report));
  if (const std::optional<double> share = others.share()) report.Set("other_load", *share);
  report.PrintFacts();
  if (!options.json.empty()) KU_RETURN_IF_ERROR(report.WriteJson(options.json));
  if (!options.csv.empty() && !options.Is("memory")) {
    KU_RETURN_IF_ERROR(report.WriteCsv(options.csv));
  }
  if (options.compare.empty()) return OkStatus();
  return CompareReports(report, old_rows, options.compare, options.tolerance / 100);
}

}  // namespace
}  // namespace kuiper::tools

int main(int argc, char** argv) {
  kuiper::tools::BenchOptions options;
  return kuiper::tools::RunTool(
      argc, argv, {kuiper::tools::kBenchUsage, kuiper::tools::BenchFlags(options), 0, 1},
      [&](const auto& args) { return kuiper::tools::Run(args, options); });
}
