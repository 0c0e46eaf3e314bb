#include "demo/flags.h"

#include <utility>

#include "demo/quantize_flags.h"
#include "demo/serve_flags.h"
#include "kuiper/chat/engine_choices.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/chat/settings.h"
#include "kuiper/command_line/exit_code.h"

namespace kuiper::demo {
namespace {

constexpr const char* kTextOnly = "is not available: this program takes text only";
constexpr const char* kNotYet = "is not available in this version";

// A row of the table, and the programs that accept it; absent: those of its group.
struct Row {
  Flag flag;
  std::optional<FlagPrograms> programs = {};
};

// The rows under one title of --help.
struct Group {
  const char* title;
  FlagPrograms programs;
  std::vector<Row> rows;
};

Row Of(const char* names, Variable variable, std::string help, Limits limits = {}) {
  return {MakeFlag(names, std::move(variable), std::move(help), limits)};
}

// Makes a row whose value is a text.
Row Text(const char* names, const char* value_name, Variable variable, const char* help) {
  return {MakeFlag(names, std::move(variable), help, {}, value_name)};
}

Row OfParameter(const Parameter& parameter, Request& request, std::string short_name = "") {
  Row row{MakeFlag(FlagOf(parameter), parameter.of(request), SpellParams(parameter.help, FlagName),
                   parameter.limits, parameter.name == "stop" ? "STR" : "")};
  row.flag.short_name = std::move(short_name);
  return row;
}

Row For(FlagPrograms programs, Row row) {
  row.programs = programs;
  return row;
}

Row Infer(Row row) {
  return For(FlagPrograms::kPrompts, std::move(row));
}

Row VisionOnly(Row row) {
  return For(FlagPrograms::kSees, std::move(row));
}

Row TextOnly(Row row) {
  return For(FlagPrograms::kText, std::move(row));
}

Row Batch(Row row) {
  return For(FlagPrograms::kBatch, std::move(row));
}

Row Once(Row row) {
  return For(FlagPrograms::kOnce, std::move(row));
}

Row Many(Row row) {
  return For(FlagPrograms::kMany, std::move(row));
}

Row Answers(Row row) {
  return For(FlagPrograms::kAnswers, std::move(row));
}

Row Unused(FlagUse use, const char* name, Variable variable, const char* why,
           const char* harmless = "", Limits limits = {}) {
  Row row = Of(name, std::move(variable), "", limits);
  row.flag.use = use;
  row.flag.why = why;
  row.flag.harmless = harmless;
  return row;
}

std::vector<Row> RowsOf(std::vector<Flag> flags) {
  std::vector<Row> rows;
  rows.reserve(flags.size());
  for (Flag& flag : flags) rows.push_back({std::move(flag)});
  return rows;
}

std::vector<Row> InputRows(Options& o) {
  return {
      Batch(Text("i,input", "FILE", &o.batch_input,
                 "requests, one JSON object per line, - = standard input")),
      Batch(Text("o,output", "FILE", &o.batch_output,
                 "answers, one line per request, in order, - = standard output")),
      Batch(Of("strict", &o.strict, "exit with 1 if a request failed (default: if all failed)")),
      For(FlagPrograms::kAll, Text("m,model", "PATH", &o.engine.model_path,
                                   "model: Hugging Face directory, .safetensors or packed .bin")),
      For(FlagPrograms::kAll,
          Text("tokenizer", "PATH", &o.engine.tokenizer_path,
               "tokenizer.json, its directory, or a .model (default: the model's)")),
      Infer(Text("p,prompt", "TEXT", &o.prompt, "one user message")),
      Infer(Text("f,file", "PATH", &o.prompt_file,
                 "read the user message from a file, - = standard input")),
      Infer(Text("messages", "PATH", &o.messages_file, "OpenAI-style messages, a JSON file")),
      Once(Text("sys,system-prompt", "TEXT", &o.system_prompt,
                "system message, \"\" = none (default: the chat template's own)")),
      Text("now", "TIME", &o.now_text,
           "the time a chat template sees, e.g. 2026-11-21T12:34:56 (default: the clock's)"),
      Infer(Of("raw", &o.raw, "no chat template: the prompt is fed as it is")),
      Of("think", OneOf(&o.think, {{"on", true}, {"off", false}, {"auto", std::nullopt}}),
         "thinking; auto = the chat template's own, on"),
      Infer(Of("show-thinking", &o.show_thinking, "print the reasoning (--hide-thinking: do not)")),
      OfParameter(*FindParameter("reasoning_budget"), o.request),
  };
}

std::vector<Row> PictureRows(Options& o) {
  using enum FlagPrograms;
  std::vector<Row> rows = {
      VisionOnly(Text("image", "PATH", &o.media_paths,
                      "picture of the first message, a file or a data: URL; may be repeated")),
      VisionOnly(
          Text("video", "PATH", &o.media_paths,
               "video of the first message: a folder of frames, an animated GIF or WebP; may be "
               "repeated")),
      For(kSeesOrBatch, Of("video-fps", &o.video_fps,
                           "frames per second of videos (default: the animation's, else 24)",
                           {.max = 1e6, .above_min = true})),
      For(kPictures,
          Of("max-pixels", &o.image.max_pixels,
             "larger pictures, and frames of videos, are scaled down to this; model = as its "
             "file says",
             {.min = 1, .absent = "model"})),
      For(kPictures,
          Of("min-pixels", &o.image.min_pixels,
             "smaller pictures are scaled up to this (default: as the model's file says)",
             {.min = 1})),
      For(kPictures,
          Of("image-max-tokens", &o.image.max_tokens,
             "tokens that a picture, or a frame of a video, may become (default: what --max-pixels "
             "gives)",
             {.min = 1})),
      For(kPictures, Of("image-scaling", ScalingChoices(&o.image.scaling),
                        "version of Pillow whose scaling of pictures is followed to the bit")),
  };
  for (const char* name : {"image", "video", "video-fps", "max-pixels", "min-pixels",
                           "image-max-tokens", "image-scaling"}) {
    rows.push_back(TextOnly(Unused(FlagUse::kUnavailable, name, &o.unused.text, kTextOnly)));
  }
  return rows;
}

std::vector<Row> GenerationRows(Options& o) {
  const auto row = [&](const char* name) { return OfParameter(*FindParameter(name), o.request); };
  std::vector<Row> rows = {Once(OfParameter(*FindParameter("max_tokens"), o.request, "n"))};
  for (const Parameter& sampling : Parameters()) {
    if (sampling.of_sampling) rows.push_back(OfParameter(sampling, o.request));
  }
  rows.insert(
      rows.end(),
      {
          Of("use-generation-config", &o.use_generation_config,
             "sampling of generation_config.json, where not given (default: servers, and chat on a "
             "terminal)"),
          row("stop"),
          row("min_tokens"),
          row("stop_token_ids"),
          row("logit_bias"),
          row("ignore_eos"),
          Infer(row("logprobs")),
          Infer(row("beam_width")),
          Infer(row("length_penalty")),
          Infer(row("num_samples")),
          Once(Of("overflow", OverflowNames(&o.drop_oldest),
                  "prompt longer than the context: fail, or drop the oldest turns "
                  "(default: error; a chat on a terminal drops)")),
          Infer(Unused(FlagUse::kUnavailable, "json-schema", &o.unused.text, kNotYet)),
          Unused(FlagUse::kUnavailable, "speculative",
                 OneOf(&o.unused.on, {{"none", true}}, {"ngram"}), kNotYet, "none"),
          Unused(FlagUse::kUnavailable, "num-speculative-tokens", &o.unused.number, kNotYet, "0",
                 {0, 64}),
      });
  return rows;
}

std::vector<Row> CacheRows(EngineConfig& e) {
  using enum OnFull;
  using enum Preemption;
  using enum SchedulingPolicy;
  return {
      Of("paged-attention", &e.paged,
         "KV cache in pages with a block table (batches and servers: on)"),
      Of("block-size", &e.page_size, "tokens per page, a power of two from 1 to 256",
         {.min = 1, .max = 256, .power_of_two = true}),
      Of("c,max-context", &e.max_context, "context length (default: 8192 or the model's limit)",
         {.min = 1}),
      Answers(
          Of("prefix-cache", &e.prefix_cache,
             "reuse keys and values of prompts (on for batches, servers, chats on a terminal)")),
      Answers(Of("prefix-cache-size", &e.prefix_cache_tokens,
                 "tokens kept for reuse, clamped to the pool")),
      Of("kv-cache-dtype", KvFormatChoices(&e.kv_format), "type of keys and values"),
      Of("gpu-memory-utilization", &e.memory_utilization,
         "share of the available memory that may be used (default: 0.9, integrated GPUs 0.8)",
         {.max = 1, .above_min = true}),
      Of("kv-cache-memory", &e.kv_cache_bytes,
         "size of the KV cache, e.g. 512M (default: as --num-blocks)", {.bytes = true}),
      Of("num-blocks", &e.num_blocks,
         "size of the KV cache in pages (default: a context per sequence, or what fits)",
         {.min = 1}),
      Of("max-num-batched-tokens", &e.max_num_batched_tokens, "tokens of one prefill step",
         {1, 1 << 20}),
      Many(Of("max-num-seqs", &e.max_num_seqs, "requests that run at the same time", {1, 1024})),
      Answers(Of("policy", OneOf(&e.policy, {{"throughput", kThroughput}, {"latency", kLatency}}),
                 "most tokens per second, or the shortest delays for at most two requests")),
      Answers(
          Of("latency-target", &e.latency_target_ms,
             "with --policy latency: target milliseconds of a step that mixes prefill and decode",
             {.max = 1e6, .above_min = true})),
      Answers(Of("on-full",
                 OneOf(&e.on_full, {{"preempt", kPreempt}, {"stop", kStop}, {"slide", kSlide}}),
                 "full KV cache: others wait, the answer stops, or its oldest text is dropped")),
      Answers(
          Of("preemption",
             OneOf(&e.preemption, {{"recompute", kRecompute}, {"swap", kSwap}, {"auto", kAuto}}),
             "how a request that had to wait gets its KV cache back")),
      Answers(Of("swap-space", &e.swap_bytes,
                 "host memory for --preemption swap and auto, e.g. 512M", {.bytes = true})),
  };
}

std::vector<Row> ExecutionRows(Options& o) {
  using enum AttentionKind;
  using enum Determinism;
  EngineConfig& e = o.engine;
  Row deterministic = Of(
      "deterministic", OneOf(&e.ops.determinism, {{"on", kOn}, {"strict", kStrict}, {"off", kOff}}),
      "see Guarantees; strict: prefill equals decode to the bit on a GPU, too");
  deterministic.flag.bare_value = "on";
  deterministic.flag.negated_value = "off";
  return {
      Answers(Of("cuda-graph", &e.use_graph,
                 "record the decode step once and replay it (CPU: only when given)")),
      Of("warm-up", &e.warm_up, "compute tokens before the first request (default: on devices)"),
      Of("attention",
         OneOf(&e.ops.attention,
               {{"auto", kAuto}, {"mha", kMha}, {"flash1", kFlash1}, {"flash2", kFlash2}}),
         "attention kernel"),
      Many(Of("cascade-attention", &e.cascade_attention,
              "read pages that requests share once (default: on the CPU and on tensor cores)")),
      deterministic,
      Of("device", &o.device, "cpu, simt or cuda:N (default: cuda:0 if usable, else cpu)"),
      Of("dtype", WeightTypeChoices(&e.dtype), "convert the weights; auto = as stored"),
      Of("lm-head-dtype", HeadTypeChoices(&e.int8_head),
         "quantise the last matrix while it is loaded; auto = as stored"),
      Of("activation-dtype", ActivationTypeChoices(&e.int8_activations),
         "CPU, weights of INT4 and INT8: round what they are multiplied with to 8 bits, which is "
         "faster; auto = 16 bits"),
      Of("weights", WeightStorageChoices(&e.weight_storage),
         "CPU: weights in the mapped file, or copied to memory that is read faster; "
         "auto = copied if there is room and it pays"),
      For(FlagPrograms::kAll,
          Of("threads", &e.ops.num_threads, "CPU threads (default: one per core)", {1, 1024})),
      Text("cpu-target", "NAME", &e.ops.cpu_target,
           "CPU kernels of this instruction set, e.g. AVX2 (default: the best)"),
  };
}

std::vector<Row> OutputRows(Options& o) {
  using enum OutputFormat;
  using enum LogLevel;
  Row color = Of("color",
                 OneOf(&o.color, {{"auto", ColorMode::kAuto},
                                  {"never", ColorMode::kNever},
                                  {"always", ColorMode::kAlways}}),
                 "auto: on a terminal without NO_COLOR");
  color.flag.bare_value = "always";
  return {
      Infer(Of("i,interactive", &o.wants.chat, "chat; with piped input one line is one turn")),
      Infer(Of("stream", &o.stream, "print text as it is produced (default: on a terminal)")),
      Infer(Of("max-history", &o.max_history,
               "earlier turns kept in a chat (default: 10; all in a chat on a terminal)")),
      Answers(Of("history-thinking", OneOf(&o.keep_thinking, {{"strip", false}, {"keep", true}}),
                 "reasoning of earlier turns")),
      Infer(Text("session", "FILE", &o.session_file,
                 "load the conversation from this JSON file and save it there")),
      Infer(Of("o,output-format",
               OneOf(&o.format,
                     {{"text", kText}, {"raw", kRaw}, {"json", kJson}, {"jsonl", kJsonLines}}),
               "form of standard output")),
      Of("q,quiet", &o.quiet, "only the answer on stdout, only warnings and errors on stderr"),
      Of("v,verbose", &o.verbose, "more log lines"),
      Of("log-level",
         OneOf(&o.log_level,
               {{"debug", kDebug}, {"info", kInfo}, {"warning", kWarning}, {"error", kError}}),
         "least important lines on stderr"),
      Text("log-file", "PATH", &o.log_file, "also write the log to this file"),
      Infer(Of("stats", &o.stats, "statistics on stderr")),
      Infer(Text("stats-json", "PATH", &o.stats_file,
                 "statistics to this file, one JSON object per answer")),
      color,
  };
}

std::vector<Row> ToolRows(Options& o) {
  return {
      Infer(Of("tokenize", &o.wants.tokenize, "print the ids of the prompt and exit")),
      Infer(Of("print-prompt", &o.wants.print_prompt,
               "print the text of the prompt and exit; needs the chat template only")),
      Of("dry-run", &o.wants.dry_run, "print the memory plan and exit 0 or 7"),
      Infer(Of("verify-paged", &o.wants.verify_paged,
               "run contiguous and paged, compare ids and logits to the bit")),
      Once(Text("trace-kv", "FILE", &o.trace_file,
                "write the events of each block of the paged KV cache, JSON lines")),
      Once(Text("dump-block-table", "PATH", &o.tables_file,
                "write the blocks where each answer's keys and values lie, JSON lines")),
      Infer(Text("dump-tokens", "PATH", &o.tokens_file, "write the generated ids, one per line")),
      Infer(Text("dump-logits", "PATH", &o.logits_file,
                 "write the logits of each token, .npy float32 [tokens, vocab]")),
      Infer(Of("benchmark", &o.wants.benchmark, "measure prefill and decode, print CSV")),
      Infer(Of("benchmark-decode-tokens", &o.benchmark_decode, "tokens to decode per row",
               {.min = 1})),
      Infer(Of("benchmark-prompt-tokens", &o.benchmark_prompts, "prompt lengths", {.min = 1})),
      Infer(Of("repetitions", &o.repetitions, "rows per prompt length", {1, 10000})),
  };
}

std::vector<Row> EvalRows(EvalOptions& e, bool* wants_json) {
  return {
      Text("text", "FILE", &e.text_file, "the text to predict, - = standard input"),
      Text("against", "FLAGS", &e.against,
           "compare with the same run with these flags or another MODEL, e.g. "
           "\"--kv-cache-dtype fp16\"; may be repeated"),
      Of("window", &e.window, "tokens computed together (default: 512 or the context)", {.min = 2}),
      Of("stride", &e.stride, "tokens between the beginnings of windows (default: half a window)",
         {.min = 1}),
      Of("limit", &e.limit, "tokens of the text at most (default: all)", {.min = 2, .max = 1e15}),
      Of("json", wants_json, "one object on standard output"),
  };
}

}  // namespace

std::string FlagOf(const Parameter& parameter) {
  return FlagName(parameter.typed_name).substr(2);
}

FlagTable FlagsOf(FlagPrograms program, Options& options) {
  FlagTable table;
  using enum FlagPrograms;
  const Group groups[] = {
      {"Evaluation", kEval, EvalRows(options.eval, &options.wants_json)},
      {"Quantization", kQuantize, RowsOf(FlagsOfQuantizing(options.quantize))},
      {"Server", kServe, RowsOf(FlagsOfServing(options.serve))},
      {"Model and input", kAnswers, InputRows(options)},
      {"Pictures", kAnswers, PictureRows(options)},
      {"Generation", kAnswers, GenerationRows(options)},
      {kConfigurationGroup, kRuns, CacheRows(options.engine)},
      {kConfigurationGroup, kRuns, ExecutionRows(options)},
      {"Session and output", kAll, OutputRows(options)},
      {"Tools", kAnswers, ToolRows(options)},
  };
  for (const Group& group : groups) {
    for (const Row& row : group.rows) {
      if (!Contains(row.programs.value_or(group.programs), program)) continue;
      table.flags.push_back(row.flag);
      table.flags.back().group = group.title;
    }
  }
  AddNames(program, &table);
  AddOtherFlags(program, options, &table);
  return table;
}

}  // namespace kuiper::demo
