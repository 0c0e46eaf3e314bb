// Prefill and decode speed against what the machine can do, for a model or for random weights in
// any shape. On the CPU the yardsticks (read bandwidth, peak multiply-add rate) are measured by
// bursts right before and after each piece of work, because shared machines change speed from
// second to second; ratios are medians of such pairs. On a GPU the read bandwidth is measured once.
// --scenario measures what serving many sequences brings instead.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/append_file.h"
#include "kuiper/base/clock.h"
#include "kuiper/base/text.h"
#include "kuiper/engine/engine.h"
#include "kuiper/io/token_stream.h"
#include "tools/kuiper_bench_machine.h"
#include "tools/kuiper_bench_options.h"
#include "tools/kuiper_bench_run.h"
#include "tools/kuiper_bench_scenarios.h"
#include "tools/tool_args.h"

namespace kuiper::tools {
namespace {

using Json = nlohmann::ordered_json;

void PrintTable(const std::vector<Row>& rows) {
  std::printf("%-8s %7s %6s %10s %11s %16s %14s %6s\n", "phase", "tokens", "batch", "ms",
              "tokens/s", "rate", "machine", "ratio");
  for (const Row& row : rows) {
    const char* unit = row.phase == "prefill" ? "GFLOP/s" : "GB/s";
    std::printf("%-8s %7d %6d %10.2f %11.1f %8.1f %-7s", row.phase.c_str(), row.tokens, row.batch,
                row.milliseconds, row.tokens_per_second, row.rate, unit);
    if (row.yardstick > 0) {
      std::printf(" %6.1f %-7s %5.1f%%\n", row.yardstick, unit, row.ratio * 100);
    } else {
      std::printf(" %14s %6s\n", "-", "-");
    }
  }
}

Json ToJson(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    const bool prefill = row.phase == "prefill";
    const bool known = row.yardstick > 0;
    list.push_back(
        {{"phase", row.phase},
         {"tokens", row.tokens},
         {"batch", row.batch},
         {"ms", row.milliseconds},
         {"tokens_per_s", row.tokens_per_second},
         {prefill ? "gflops" : "gbps", row.rate},
         {prefill ? "machine_gflops" : "machine_gbps", known ? Json(row.yardstick) : Json(nullptr)},
         {"ratio", known ? Json(row.ratio) : Json(nullptr)}});
  }
  return list;
}

// Encoding and streaming decoding of a text on one core, best of `repetitions`.
Status BenchTokenizer(const std::string& tokenizer_path, const std::string& text_path,
                      int repetitions) {
  std::ifstream in(text_path, std::ios::binary);
  if (!in) return Status(StatusCode::kInput, "cannot read " + text_path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Clock::time_point load_begin = Clock::now();
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(tokenizer_path));
  const double load = SecondsSince(load_begin);
  double encode = 1e9, decode = 1e9;
  std::vector<int32_t> ids;
  for (int r = 0; r < repetitions; ++r) {
    Clock::time_point begin = Clock::now();
    ids = tokenizer->Encode(text);
    encode = std::min(encode, SecondsSince(begin));
    begin = Clock::now();
    if (DecodeTokens(*tokenizer, ids).empty()) return Status(StatusCode::kInput, "no text");
    decode = std::min(decode, SecondsSince(begin));
  }
  const double megabytes = text.size() / 1e6;
  std::printf(
      "tokenizer: load %.0f ms, encode %.1f MB/s, decode %.1f MB/s (%.2f MB, %zu ids, 1 core)\n",
      load * 1e3, megabytes / encode, megabytes / decode, megabytes, ids.size());
  return OkStatus();
}

// The largest pool any row needs and the memory allows; rows that need more are left out later.
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

void PrintDevice(const Engine& engine) {
  std::printf("%s\n%s, %s, %s KV cache of %s%s\n", Engine::Version().c_str(),
              engine.device_description().c_str(), DTypeName(engine.weight_type()),
              engine.config().paged ? "paged" : "contiguous", engine.kv_format().name(),
              engine.config().use_graph ? ", recorded decode step" : "");
}

void PrintReport(const Engine& engine, const Machine& machine, const std::vector<Row>& rows) {
  PrintDevice(engine);
  if (!machine.bursts()) {
    std::printf("bandwidth of the device: read %.1f GB/s, copy %.1f GB/s (read + written)\n",
                machine.rates().read / 1e9, machine.rates().copy / 1e9);
  }
  PrintTable(rows);
}

Json ReportJson(const Engine& engine, const Machine& machine, const std::vector<Row>& rows) {
  Json json = {{"version", Engine::Version()},
               {"device", engine.device_description()},
               {"dtype", DTypeName(engine.weight_type())},
               {"kv_dtype", engine.kv_format().name()},
               {"layout", engine.config().paged ? "paged" : "contiguous"},
               {"recorded", engine.config().use_graph},
               {"rows", ToJson(rows)}};
  if (!machine.bursts()) {
    json["read_gbps"] = machine.rates().read / 1e9;
    json["copy_gbps"] = machine.rates().copy / 1e9;
  }
  return json;
}

StatusOr<OpenedModel> OpenModelOf(const BenchOptions& options) {
  return options.invent.empty() ? OpenModel(options.config.model_path)
                                : InventModel(options.invent);
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
  KU_RETURN_IF_ERROR(ChoosePool(w, longest, model, &config));
  return Engine::Create(config, std::move(model));
}

// The yardsticks of the engine's decode steps and prompts.
StatusOr<std::unique_ptr<Machine>> MakeMachine(const Engine& engine) {
  return Machine::Make(engine.config().device, engine.weight_type(),
                       engine.weight_bytes_per_token(), engine.config().ops.num_threads);
}

Status BenchRates(const BenchOptions& options) {
  const Workload& w = options.workload;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, CreateEngine(options, w));
  const int longest = *std::max_element(w.prompts.begin(), w.prompts.end());

  // Memory is read before the yardsticks take some.
  KU_ASSIGN_OR_RETURN(const Completion warm_up,
                      engine->Generate(MakeBenchRequest(*engine, longest, 2, 0)));
  const size_t peak_resident = 1024 * ReadKey("/proc/self/status", "VmHWM:").value_or(0);
  const KvStats kv = engine->kv_stats();
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine, MakeMachine(*engine));
  KU_ASSIGN_OR_RETURN(const std::vector<Row> rows, MeasureRows(*engine, *machine, w));

  PrintReport(*engine, *machine, rows);
  std::printf(
      "memory after %d tokens: weights %.1f MB, KV touched %.1f MB, peak resident %.1f MB\n",
      warm_up.prompt_tokens + 2, static_cast<double>(engine->memory_plan().weight_bytes) / 1e6,
      static_cast<double>(kv.bytes_touched) / 1e6, static_cast<double>(peak_resident) / 1e6);
  if (options.json.empty()) return OkStatus();
  Json json = ReportJson(*engine, *machine, rows);
  json["weight_bytes"] = engine->memory_plan().weight_bytes;
  json["kv_bytes_touched"] = kv.bytes_touched;
  json["peak_resident_bytes"] = peak_resident;
  std::ofstream out(options.json);
  out << json.dump(2) << "\n";
  return out.flush() ? OkStatus() : WriteFailed(options.json);
}

Status BenchThroughput(const BenchOptions& options) {
  Workload w = options.workload;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, CreateEngine(options, w));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine, MakeMachine(*engine));
  w.prompts.clear();
  KU_ASSIGN_OR_RETURN(const std::vector<Row> rows, MeasureRows(*engine, *machine, w));
  PrintDevice(*engine);
  PrintThroughput(rows);
  return OkStatus();
}

Status BenchWarmPrefix(BenchOptions options) {
  Workload w = options.workload;
  for (int& tokens : w.prompts) tokens += kQuestionTokens;
  w.contexts = w.prompts;
  w.batches = {2};  // room for a second sequence that shares nothing
  options.config.prefix_cache = true;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, CreateEngine(options, w));
  PrintDevice(*engine);
  return BenchPrefix(*engine, options.workload.prompts, w.repetitions);
}

Status BenchSharedPrompt(BenchOptions options) {
  Workload w = options.workload;
  w.contexts.clear();
  for (const int tokens : w.prompts) w.contexts.push_back(tokens + kQuestionTokens);
  options.config.prefix_cache = true;
  options.config.cascade_attention = true;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> with, CreateEngine(options, w));
  options.config.cascade_attention = false;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> without, CreateEngine(options, w));
  PrintDevice(*with);
  return BenchCascade(*with, *without, w);
}

// Two users, with the policy that fills steps and with the one for their delay.
Status BenchTwoUsers(BenchOptions options) {
  Workload w = options.workload;
  const int longest = *std::max_element(w.prompts.begin(), w.prompts.end());
  for (int& tokens : w.contexts) tokens += w.steps + longest + 2;
  w.batches = {2};
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> throughput, CreateEngine(options, w));
  options.config.policy = SchedulingPolicy::kLatency;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> latency, CreateEngine(options, w));
  PrintDevice(*latency);
  return BenchLatency({"throughput", "latency"}, {throughput.get(), latency.get()},
                      options.workload);
}

// Needs the shapes of a model only.
Status BenchAttentionOf(const BenchOptions& options) {
  KU_ASSIGN_OR_RETURN(const OpenedModel model, OpenModelOf(options));
  OpsOptions ops = options.config.ops;
  ops.determinism = Determinism::kStrict;  // no matrix products
  const DecoderConfig& decoder = model.config.decoder;
  const DType weights = options.config.dtype.value_or(decoder.dtype);
  return BenchAttention(decoder, options.config.device, ops, weights,
                        options.config.kv_format.value_or(KvFormat::Of(weights)), options.workload);
}

// The server's own threads take what the engine leaves them.
Status BenchServerOf(BenchOptions options) {
  if (!options.invent.empty() && !options.tokenizer.has_value()) {
    return Status(StatusCode::kInvalidArgument, "a server needs a tokenizer",
                  "--tokenizer names one, --invent has none");
  }
  KU_ASSIGN_OR_RETURN(OpenedModel model, OpenModelOf(options));
  options.config.max_num_batched_tokens = options.workload.chunk;
  options.config.use_graph = options.config.device.type != DeviceType::kCPU;
  if (options.Is("server-cost")) {
    return BenchServerCost(options.config, std::move(model), options.workload);
  }
  return BenchServe(options.serve, options.config, std::move(model),
                    options.workload.LargestBatch());
}

Status Run(const demo::ParsedArgs& args, BenchOptions options) {
  KU_RETURN_IF_ERROR(FinishOptions(args, &options));
  if (!args.positionals.empty()) options.config.model_path = args.positionals[0];
  for (const std::string& path : {options.json, options.csv, options.serve.svg}) {
    if (!path.empty()) KU_RETURN_IF_ERROR(CheckWritable(path));
  }
  if (options.Is("scheduler")) {
    BenchScheduler(options.workload.batches, 1000);
    return OkStatus();
  }
  if (options.Is("memory")) return BenchMemory(options.load, options.csv);
  if (!options.text.empty()) {
    return BenchTokenizer(options.tokenizer.value_or(options.config.model_path), options.text,
                          options.workload.repetitions);
  }
  if (!options.serve.url.empty()) {
    if (options.invent.empty() && args.positionals.empty()) return BenchServe(options.serve);
    return Status(StatusCode::kInvalidArgument, "--url is a server with a model of its own");
  }
  if (options.invent.empty() == args.positionals.empty()) {
    return Status(StatusCode::kInvalidArgument, "give either MODEL or --invent CONFIG.json",
                  std::string("usage: ") + kBenchUsage);
  }
  if (options.Is("attention")) return BenchAttentionOf(options);
  if (options.Is("vision")) {
    KU_ASSIGN_OR_RETURN(OpenedModel model, OpenModelOf(options));
    return BenchVision(std::move(model), options.config.device, options.config.ops,
                       options.config.dtype, options.sides, options.workload.repetitions);
  }
  if (options.Is("serve") || options.Is("server-cost")) return BenchServerOf(std::move(options));
  if (options.Is("throughput")) return BenchThroughput(options);
  if (options.Is("latency")) return BenchTwoUsers(options);
  if (options.Is("prefix")) return BenchWarmPrefix(std::move(options));
  if (options.Is("cascade")) return BenchSharedPrompt(std::move(options));
  return BenchRates(options);
}

}  // namespace
}  // namespace kuiper::tools

int main(int argc, char** argv) {
  kuiper::tools::BenchOptions options;
  return kuiper::tools::RunTool(
      argc, argv, {kuiper::tools::kBenchUsage, kuiper::tools::BenchFlags(options), 0, 1},
      [&](const auto& args) { return kuiper::tools::Run(args, options); });
}
