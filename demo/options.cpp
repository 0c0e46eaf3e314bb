#include "demo/options.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "demo/flag_table.h"
#include "demo/flags.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

Status Bad(const std::string& message, const std::string& hint = "") {
  return Status(StatusCode::kInvalidArgument, message, hint);
}

std::vector<int> ParseList(const std::string& list) {
  std::vector<int> values;
  for (const char* p = list.c_str(); *p != '\0';) {
    char* end = nullptr;
    values.push_back(static_cast<int>(std::strtol(p, &end, 10)));
    p = *end == ',' ? end + 1 : end;
  }
  return values;
}

Device ParseDevice(const std::string& name) {
  if (name == "cpu") return {DeviceType::kCPU, 0};
  if (name == "simt") return {DeviceType::kSimt, 0};
  return {DeviceType::kCUDA, std::atoi(name.c_str() + 5)};
}

// Many requests at once want pages, and requests of one file often begin alike.
Status TakeBatch(const ParsedArgs& args, Options* options) {
  EngineConfig& engine = options->engine;
  if (!args.given("paged-attention")) engine.paged = true;
  if (!args.given("prefix-cache")) engine.prefix_cache = true;
  engine.max_num_seqs = FLAGS_max_num_seqs;
  if (args.given("cascade-attention")) engine.cascade_attention = FLAGS_cascade_attention;
  options->batch_input = FLAGS_input;
  options->batch_output = FLAGS_output;
  if (FLAGS_dry_run) return OkStatus();
  if (options->batch_input.empty()) {
    return Bad("no --input given", "usage: MODEL --input requests.jsonl --output answers.jsonl");
  }
  if (options->batch_output.empty()) {
    return Bad("no --output given", "--output - writes the answers to standard output");
  }
  return OkStatus();
}

Status TakePositionals(const ParsedArgs& args, Options* options) {
  EngineConfig& engine = options->engine;
  engine.model_path = FLAGS_model;
  engine.tokenizer_path = FLAGS_tokenizer;
  size_t next = 0;
  if (!args.given("model") && next < args.positionals.size()) {
    engine.model_path = args.positionals[next++];
  }
  if (!args.given("tokenizer") && next < args.positionals.size()) {
    engine.tokenizer_path = args.positionals[next++];
  }
  if (next < args.positionals.size()) {
    return Bad("unexpected argument '" + args.positionals[next] + "'",
               "usage: MODEL [TOKENIZER] [options]; --help lists all options");
  }
  if (engine.model_path.empty()) {
    return Bad("no model given", "usage: MODEL [TOKENIZER] [options]; --help lists all options");
  }
  return OkStatus();
}

void TakeInput(const ParsedArgs& args, Options* options) {
  if (args.given("prompt")) options->prompt = FLAGS_prompt;
  if (args.given("file")) options->prompt_file = FLAGS_file;
  if (args.given("messages")) options->messages_file = FLAGS_messages;
  if (args.given("system-prompt")) options->system_prompt = FLAGS_system_prompt;
  options->raw = FLAGS_raw;
  if (FLAGS_think != "auto") options->think = FLAGS_think == "on";
  options->show_thinking = FLAGS_show_thinking;
}

void TakeGeneration(const ParsedArgs& args, Options* options) {
  Generation& generation = options->generation;
  SamplingParams& sampling = generation.sampling;
  sampling.temperature = static_cast<float>(FLAGS_temp);
  sampling.top_k = FLAGS_top_k;
  sampling.top_p = static_cast<float>(FLAGS_top_p);
  sampling.min_p = static_cast<float>(FLAGS_min_p);
  sampling.repetition_penalty = static_cast<float>(FLAGS_repetition_penalty);
  sampling.presence_penalty = static_cast<float>(FLAGS_presence_penalty);
  sampling.frequency_penalty = static_cast<float>(FLAGS_frequency_penalty);
  sampling.seed = FLAGS_seed;
  generation.max_tokens = FLAGS_max_tokens;
  generation.reasoning_budget = FLAGS_reasoning_budget;
  options->use_generation_config = FLAGS_use_generation_config;
  for (const char* name : {"temp", "top-k", "top-p", "min-p", "repetition-penalty"}) {
    if (args.given(name)) options->sampling_given.insert(name);
  }
  if (args.given("stop")) options->stop = args.values.at("stop");
  options->ignore_eos = FLAGS_ignore_eos;
  options->logprobs = FLAGS_logprobs;
  options->num_samples = FLAGS_num_samples;
  options->beam_width = FLAGS_beam_width;
  options->length_penalty = static_cast<float>(FLAGS_length_penalty);
  options->drop_oldest = FLAGS_overflow == "drop-oldest";
}

Status TakeEngine(const ParsedArgs& args, Options* options) {
  EngineConfig& engine = options->engine;
  engine.paged = FLAGS_paged_attention;
  engine.page_size = FLAGS_block_size;
  if (args.given("max-context")) engine.max_context = FLAGS_max_context;
  engine.max_num_batched_tokens = FLAGS_max_num_batched_tokens;
  engine.prefix_cache = FLAGS_prefix_cache;
  engine.prefix_cache_tokens = FLAGS_prefix_cache_size;
  if (args.given("prefix-cache-size")) options->prefix_cache_size = FLAGS_prefix_cache_size;
  if (args.given("gpu-memory-utilization")) {
    engine.memory_utilization = FLAGS_gpu_memory_utilization;
  }
  if (args.given("num-blocks")) engine.num_blocks = FLAGS_num_blocks;
  if (args.given("kv-cache-memory")) engine.kv_cache_bytes = FLAGS_kv_cache_memory;
  if (FLAGS_kv_cache_dtype == "int8") {
    return Bad("--kv-cache-dtype int8 is not available in this version");
  }
  if (FLAGS_kv_cache_dtype == "fp16") engine.kv_dtype = DType::kF16;
  if (FLAGS_dtype == "fp16") engine.dtype = DType::kF16;
  if (FLAGS_dtype == "bf16") engine.dtype = DType::kBF16;
  if (FLAGS_dtype == "fp32") engine.dtype = DType::kF32;
  engine.ops.num_threads = FLAGS_threads;
  engine.ops.attention = FLAGS_attention == "mha"      ? AttentionKind::kMha
                         : FLAGS_attention == "flash2" ? AttentionKind::kFlash2
                                                       : AttentionKind::kFlash1;
  engine.ops.determinism = FLAGS_deterministic == "strict" ? Determinism::kStrict
                           : FLAGS_deterministic == "off"  ? Determinism::kOff
                                                           : Determinism::kOn;
  engine.policy =
      FLAGS_policy == "latency" ? SchedulingPolicy::kLatency : SchedulingPolicy::kThroughput;
  engine.on_full = FLAGS_on_full == "stop"    ? OnFull::kStop
                   : FLAGS_on_full == "slide" ? OnFull::kSlide
                                              : OnFull::kPreempt;
  engine.preemption = FLAGS_preemption == "swap"   ? Preemption::kSwap
                      : FLAGS_preemption == "auto" ? Preemption::kAuto
                                                   : Preemption::kRecompute;
  engine.swap_bytes = FLAGS_swap_space;
  engine.max_num_seqs = std::max(FLAGS_num_samples, FLAGS_beam_width);
  engine.use_graph = FLAGS_cuda_graph;
  options->graph_given = args.given("cuda-graph") && FLAGS_cuda_graph;
  if (!FLAGS_device.empty()) options->device = ParseDevice(FLAGS_device);
  return OkStatus();
}

void TakeOutput(const ParsedArgs& args, Options* options) {
  if (args.given("stream")) options->stream = FLAGS_stream;
  options->max_history = FLAGS_max_history;
  options->keep_thinking = FLAGS_history_thinking == "keep";
  options->session_file = FLAGS_session;
  options->quiet = FLAGS_quiet;
  options->format = FLAGS_output_format == "raw"     ? OutputFormat::kRaw
                    : FLAGS_output_format == "json"  ? OutputFormat::kJson
                    : FLAGS_output_format == "jsonl" ? OutputFormat::kJsonLines
                    : FLAGS_quiet                    ? OutputFormat::kRaw
                                                     : OutputFormat::kText;
  options->log_level = FLAGS_verbose ? LogLevel::kDebug
                       : FLAGS_quiet ? LogLevel::kWarning
                                     : LogLevel::kInfo;
  if (args.given("log-level")) {
    options->log_level = FLAGS_log_level == "debug"     ? LogLevel::kDebug
                         : FLAGS_log_level == "info"    ? LogLevel::kInfo
                         : FLAGS_log_level == "warning" ? LogLevel::kWarning
                                                        : LogLevel::kError;
  }
  options->log_file = FLAGS_log_file;
  options->stats = FLAGS_stats;
  options->stats_file = FLAGS_stats_json;
  options->color = FLAGS_color == "never"    ? ColorMode::kNever
                   : FLAGS_color == "always" ? ColorMode::kAlways
                                             : ColorMode::kAuto;
  options->tokens_file = FLAGS_dump_tokens;
  options->logits_file = FLAGS_dump_logits;
  options->benchmark_prompts = ParseList(FLAGS_benchmark_prompt_tokens);
  options->benchmark_decode = FLAGS_benchmark_decode_tokens;
  options->repetitions = FLAGS_repetitions;
}

// At most one of these may be given.
Status CheckOneOf(const ParsedArgs& args, const std::vector<const char*>& names) {
  const char* first = nullptr;
  for (const char* name : names) {
    const auto it = args.values.find(name);
    if (it == args.values.end() || it->second.back() == "false") continue;
    if (first != nullptr) {
      return Bad(std::string("--") + first + " and --" + name + " exclude each other");
    }
    first = name;
  }
  return OkStatus();
}

Status CheckTogether(const ParsedArgs& args, const Options& options) {
  KU_RETURN_IF_ERROR(CheckOneOf(args, {"prompt", "file", "messages"}));
  KU_RETURN_IF_ERROR(CheckOneOf(args, {"messages", "raw"}));
  KU_RETURN_IF_ERROR(CheckOneOf(args, {"system-prompt", "raw"}));
  KU_RETURN_IF_ERROR(
      CheckOneOf(args, {"interactive", "tokenize", "dry-run", "verify-paged", "benchmark"}));
  for (const char* name : {"prompt", "file", "messages", "session"}) {
    KU_RETURN_IF_ERROR(CheckOneOf(args, {"benchmark", name}));
  }
  KU_RETURN_IF_ERROR(CheckOneOf(args, {"raw", "session"}));
  KU_RETURN_IF_ERROR(CheckOneOf(args, {"raw", "interactive"}));
  for (const char* name : {"dump-tokens", "dump-logits"}) {
    KU_RETURN_IF_ERROR(CheckOneOf(args, {"interactive", name}));
  }
  const std::pair<const char*, int> several[] = {{"num-samples", options.num_samples},
                                                 {"beam-width", options.beam_width}};
  for (const auto& [flag, count] : several) {
    if (count == 1) continue;
    for (const char* name :
         {"interactive", "session", "verify-paged", "benchmark", "dump-tokens", "dump-logits"}) {
      KU_RETURN_IF_ERROR(CheckOneOf(args, {flag, name}));
    }
  }
  if (options.beam_width > 1) {
    for (const char* name :
         {"num-samples", "reasoning-budget", "logprobs", "use-generation-config"}) {
      KU_RETURN_IF_ERROR(CheckOneOf(args, {"beam-width", name}));
    }
    if (options.generation.sampling.temperature > 0) return Bad("--beam-width takes no --temp");
  }
  if (options.logprobs > 0 && !options.json()) {
    return Bad("--logprobs needs --output-format json or jsonl");
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return Bad("--stop: the string is empty");
    if (!IsValidUtf8(stop)) return Bad("--stop is not valid UTF-8");
  }
  if (!IsValidUtf8(options.system_prompt.value_or(""))) {
    return Status(StatusCode::kInput, "--system-prompt is not valid UTF-8");
  }
  return OkStatus();
}

// Flags that cannot matter in this run: "--NAME has no effect WHY".
void NoteUseless(const ParsedArgs& args, const Options& options, std::vector<std::string>* notes) {
  const EngineConfig& engine = options.engine;
  const auto note = [&](bool useless, const char* why, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!useless || !args.given(name)) continue;
      notes->push_back(std::string("--") + name + " has no effect " + why);
    }
  };
  const bool answers = options.task == Task::kAnswer;
  const bool chats = options.task == Task::kChat;
  note(!engine.paged && options.task != Task::kVerifyPaged, "without --paged-attention",
       {"num-blocks", "kv-cache-memory"});
  note(!engine.prefix_cache, "without --prefix-cache", {"prefix-cache-size"});
  note(engine.preemption == Preemption::kRecompute, "without --preemption swap or auto",
       {"swap-space"});
  // Requests of a batch and /set in a chat bring a temperature of their own.
  note(answers && options.generation.sampling.temperature == 0 && !options.use_generation_config,
       "without --temp: decoding is greedy", {"top-k", "top-p", "min-p"});
  note(options.beam_width == 1, "without --beam-width", {"length-penalty"});
  note(!chats && options.session_file.empty(), "without --interactive or --session",
       {"max-history"});
  note(options.task != Task::kBenchmark, "without --benchmark",
       {"benchmark-prompt-tokens", "benchmark-decode-tokens", "repetitions"});
  note(!answers, "where no single answer is printed", {"dump-tokens", "dump-logits"});
  note(!answers && !chats, "where no answer is printed", {"stats-json"});
  note(options.raw, "with --raw", {"think"});
}

void TakeNotes(const ParsedArgs& args, Options* options) {
  std::vector<std::string>& notes = options->notes;
  for (const FlagGroup& group : FlagGroups()) {
    for (const FlagSpec& flag : group.flags) {
      if (flag.use != FlagUse::kNoEffect || !args.given(flag.name)) continue;
      const bool negated = flag.kind == FlagKind::kBool && args.values.at(flag.name)[0] == "false";
      notes.push_back(std::string(negated ? "--no-" : "--") + flag.name + " " + flag.why);
    }
  }
  NoteUseless(args, *options, &notes);
  if (options->format == OutputFormat::kJson && options->stream.value_or(false)) {
    notes.push_back("--stream has no effect with --output-format json (jsonl streams)");
  }
  if (options->num_samples > 1 && options->format != OutputFormat::kJsonLines &&
      options->stream.value_or(false)) {
    notes.push_back("--stream has no effect with --num-samples (--output-format jsonl streams)");
    options->stream = false;
  }
  if (options->beam_width > 1 && options->stream.value_or(false)) {
    notes.push_back("--stream has no effect with --beam-width: the answer is chosen at the end");
    options->stream = false;
  }
}

}  // namespace

StatusOr<Options> OptionsFromFlags(const ParsedArgs& args, FlagPrograms program) {
  Options options;
  KU_RETURN_IF_ERROR(TakePositionals(args, &options));
  TakeInput(args, &options);
  TakeGeneration(args, &options);
  KU_RETURN_IF_ERROR(TakeEngine(args, &options));
  TakeOutput(args, &options);
  const bool batch = program == FlagPrograms::kBatch;
  if (batch) KU_RETURN_IF_ERROR(TakeBatch(args, &options));
  KU_RETURN_IF_ERROR(CheckTogether(args, options));
  options.task = FLAGS_tokenize       ? Task::kTokenize
                 : FLAGS_dry_run      ? Task::kDryRun
                 : FLAGS_verify_paged ? Task::kVerifyPaged
                 : FLAGS_benchmark    ? Task::kBenchmark
                 : FLAGS_interactive  ? Task::kChat
                 : batch              ? Task::kBatch
                                      : Task::kAnswer;
  TakeNotes(args, &options);
  return options;
}

void ApplyGenerationConfig(const GenerationConfig& config, Options* options) {
  if (!options->use_generation_config) return;
  SamplingParams& sampling = options->generation.sampling;
  const auto given = [&](const char* name) { return options->sampling_given.contains(name); };
  // do_sample false: the model's authors want greedy decoding, whatever the other fields say.
  const bool samples = config.do_sample.value_or(config.temperature.has_value());
  if (!given("temp")) sampling.temperature = samples ? config.temperature.value_or(1.f) : 0.f;
  if (!given("top-k")) sampling.top_k = config.top_k.value_or(sampling.top_k);
  if (!given("top-p")) sampling.top_p = config.top_p.value_or(sampling.top_p);
  if (!given("min-p")) sampling.min_p = config.min_p.value_or(sampling.min_p);
  if (!given("repetition-penalty")) {
    sampling.repetition_penalty = config.repetition_penalty.value_or(sampling.repetition_penalty);
  }
}

}  // namespace kuiper::demo
