#include "demo/options.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "demo/eval_options.h"
#include "demo/flags.h"
#include "kuiper/base/errors.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/command_line/config_file.h"
#include "kuiper/io/text_input.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

// Limit of an image: 980 tokens of Qwen3-VL, so that several images fit the context.
constexpr int64_t kMaxPixels = 1003520;

// Many requests at once need paging, and requests of one file often share a prefix.
Status FinishBatch(Options* options) {
  if (!options->args.given("paged-attention")) options->engine.paged = true;
  if (!options->args.given("prefix-cache")) options->engine.prefix_cache = true;
  if (options->wants.dry_run) return OkStatus();
  if (options->batch_input.empty()) {
    return InvalidArgument("no --input given",
                           "usage: MODEL --input requests.jsonl --output answers.jsonl");
  }
  if (options->batch_output.empty()) {
    return InvalidArgument("no --output given", "--output - writes the answers to standard output");
  }
  return OkStatus();
}

// Server defaults: HTTP clients cannot pass flags, so turn on paging, prefix cache and generation
// config.
void FinishServe(Options* options) {
  if (!options->args.given("paged-attention")) options->engine.paged = true;
  if (!options->args.given("prefix-cache")) options->engine.prefix_cache = true;
  if (!options->args.given("use-generation-config")) options->use_generation_config = true;
  if (!options->args.given("seed")) options->request.sampling.seed = kRandomSeed;
  constexpr int kPromptRows = 32;  // 20 MB of logits with a vocabulary of 152 thousand
  options->engine.prompt_rows = std::min(kPromptRows, options->engine.max_num_batched_tokens);
  // Limit of the pixels that one body may make the server decode: 200 MB.
  options->image.limits.max_pixels = int64_t{1} << 26;
}

// True if an argument after MODEL is the prompt and not a tokenizer: it is not the path of a file
// or folder, and has white space. Only scripts for older programs pass a tokenizer there. For
// kuiper run and chat, a word that does not look like a path is therefore a prompt as well.
bool IsPrompt(FlagPrograms program, const std::string& argument) {
  std::error_code ignored;
  if (!Contains(FlagPrograms::kPrompts, program) || std::filesystem::exists(argument, ignored)) {
    return false;
  }
  if (argument.find_first_of(" \t\r\n") != std::string::npos) return true;
  return program == FlagPrograms::kAnyModel && argument.find('/') == std::string::npos &&
         !argument.ends_with(".json") && !argument.ends_with(".model");
}

// From here on, a prompt without a flag is treated as --prompt.
Status TakePrompt(const std::string& text, Options* options) {
  for (const char* flag : {"prompt", "file", "messages"}) {
    if (!options->args.given(flag)) continue;
    return InvalidArgument("the prompt '" + ReplaceInvalidUtf8(text) + "' and --" + flag +
                           " exclude each other");
  }
  KU_RETURN_IF_ERROR(CheckText(text, "the prompt"));
  options->prompt = options->args.values["prompt"] = text;
  return OkStatus();
}

Status TakePositionals(FlagPrograms program, Options* options) {
  const std::vector<std::string>& given = options->args.positionals;
  EngineConfig& engine = options->engine;
  size_t next = 0;
  const auto left = [&] { return next < given.size(); };
  const auto is_prompt = [&] { return left() && IsPrompt(program, given[next]); };
  if (left() && !options->args.given("model")) engine.model_path = given[next++];
  const bool quantizes = program == FlagPrograms::kQuantize;
  if (left() && quantizes) options->quantize.output = given[next++];
  if (left() && !quantizes && !options->args.given("tokenizer") && !is_prompt()) {
    engine.tokenizer_path = given[next++];
  }
  std::string hint = std::string("usage: MODEL ") + (quantizes ? "OUT" : "[TOKENIZER]") +
                     (Contains(FlagPrograms::kPrompts, program) ? " [PROMPT]" : "") +
                     " [options]; --help all lists all options";
  if (is_prompt()) {
    KU_RETURN_IF_ERROR(TakePrompt(given[next++], options));
    if (left()) hint = "a prompt of several words needs quotes: MODEL \"What is 2 + 3?\"";
  }
  if (left()) return InvalidArgument("unexpected argument '" + given[next] + "'", hint);
  if (engine.model_path.empty()) return InvalidArgument("no model given", hint);
  return quantizes && options->quantize.output.empty()
             ? InvalidArgument("no output directory given", hint)
             : OkStatus();
}

void FinishOutput(Options* options) {
  if (options->wants_json) options->format = OutputFormat::kJson;
  if (options->quiet && options->format == OutputFormat::kText) {
    options->format = OutputFormat::kRaw;
  }
  if (options->args.given("log-level")) return;
  if (options->quiet) options->log_level = LogLevel::kWarning;
  if (options->verbose) options->log_level = LogLevel::kDebug;
}

Task TaskOf(const Options& options, FlagPrograms program) {
  const auto& wants = options.wants;
  return wants.tokenize                       ? Task::kTokenize
         : wants.print_prompt                 ? Task::kPrintPrompt
         : wants.dry_run                      ? Task::kDryRun
         : wants.verify_paged                 ? Task::kVerifyPaged
         : wants.benchmark                    ? Task::kBenchmark
         : wants.chat                         ? Task::kChat
         : program == FlagPrograms::kBatch    ? Task::kBatch
         : program == FlagPrograms::kEval     ? Task::kEval
         : program == FlagPrograms::kQuantize ? Task::kQuantize
         : program == FlagPrograms::kServe    ? Task::kServe
                                              : Task::kAnswer;
}

// Parses YYYY-MM-DDTHH:MM:SS.
Status ParseNow(const std::string& text, std::optional<std::tm>* now) {
  std::tm time = {};
  std::istringstream stream(text);
  stream >> std::get_time(&time, "%Y-%m-%dT%H:%M:%S");
  const std::tm wanted = time;
  const bool read = !stream.fail() && text.size() == 19;
  // Fills in the day of the week; a nonexistent day is changed to another one.
  const bool exists =
      read && timegm(&time) != -1 && time.tm_mday == wanted.tm_mday && time.tm_sec == wanted.tm_sec;
  if (!exists)
    return InvalidArgument("--now: '" + text + "' is no time", "e.g. --now 2026-11-21T12:34:56");
  *now = time;
  return OkStatus();
}

// Returns the images and videos in the order in which they were given.
std::vector<ContentPart> MediaOf(const Options& options) {
  std::vector<ContentPart> media;
  for (const auto& [flag, path] : options.args.in_order) {
    if (flag == "image") media.push_back({.kind = ContentPart::Kind::kImage, .text = path});
    if (flag != "video") continue;
    media.push_back({.kind = ContentPart::Kind::kVideo, .text = path, .fps = options.video_fps});
  }
  return media;
}

Status CheckTogether(const Options& options) {
  const ParsedArgs& args = options.args;
  const Request& request = options.request;
  std::string exclusive =
      "prompt file messages;messages raw;system-prompt raw;"
      "raw print-prompt;interactive tokenize print-prompt dry-run verify-paged benchmark;benchmark "
      "prompt;benchmark file;"
      "benchmark messages;benchmark session;raw session;raw interactive;"
      "interactive dump-tokens;interactive dump-logits";
  const std::pair<std::string, int> several[] = {{"num-samples", request.num_samples},
                                                 {"beam-width", request.beam_width}};
  for (const auto& [flag, count] : several) {
    for (const char* name :
         {"interactive", "session", "verify-paged", "benchmark", "dump-tokens", "dump-logits"}) {
      if (count > 1) exclusive += ";" + flag + " " + name;
    }
  }
  for (const char* name :
       {"num-samples", "reasoning-budget", "logprobs", "use-generation-config"}) {
    if (request.beam_width > 1) exclusive += std::string(";beam-width ") + name;
  }
  std::istringstream groups(exclusive);
  for (std::string names; std::getline(groups, names, ';');) {
    KU_RETURN_IF_ERROR(CheckOneOf(args, names));
  }
  if (request.beam_width > 1 && request.sampling.temperature > 0) {
    return InvalidArgument("--beam-width takes no --temp");
  }
  if (request.num_logprobs > 0 && !options.json()) {
    return InvalidArgument("--logprobs needs --output-format json or jsonl");
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return InvalidArgument("--stop: the string is empty");
    if (!IsValidUtf8(stop)) return InvalidArgument("--stop is not valid UTF-8");
  }
  if (!IsValidUtf8(options.system_prompt.value_or(""))) {
    return Status(StatusCode::kInput, "--system-prompt is not valid UTF-8");
  }
  return OkStatus();
}

// Notes flags that have no effect in this run: "--NAME has no effect WHY".
void NoteUseless(const Options& options, std::vector<std::string>* notes) {
  const EngineConfig& engine = options.engine;
  const auto note = [&](bool useless, const char* why, std::initializer_list<std::string> names) {
    for (const std::string& name : names) {
      if (!useless || !options.args.given(name)) continue;
      notes->push_back("--" + name + " has no effect " + why);
    }
  };
  const bool answers = options.task == Task::kAnswer;
  const bool chats = options.task == Task::kChat;
  note(!engine.paged && options.task != Task::kVerifyPaged, "without --paged-attention",
       {"num-blocks", "kv-cache-memory"});
  // It has an effect on a terminal.
  const bool may_reuse = chats && !options.args.given("prefix-cache");
  note(!engine.prefix_cache && !may_reuse, "without --prefix-cache", {"prefix-cache-size"});
  note(engine.preemption == Preemption::kRecompute, "without --preemption swap or auto",
       {"swap-space"});
  // Batch requests and /set in a chat may set their own temperature.
  const bool greedy =
      answers && options.request.sampling.temperature == 0 && !options.use_generation_config;
  for (const Parameter& parameter : Parameters()) {
    if (!parameter.only_for_sampling) continue;
    note(greedy, "without --temp: decoding is greedy", {FlagOf(parameter)});
  }
  note(options.request.beam_width == 1, "without --beam-width", {"length-penalty"});
  note(!chats && options.session_file.empty(), "without --interactive or --session",
       {"max-history"});
  note(options.task != Task::kBenchmark, "without --benchmark",
       {"benchmark-prompt-tokens", "benchmark-decode-tokens", "repetitions"});
  note(!answers, "where no single answer is printed", {"dump-tokens", "dump-logits"});
  note(!answers && !chats, "where no answer is printed", {"stats-json"});
  note(!options.answers(), "where no answer is printed", {"trace-kv", "dump-block-table"});
  note(options.answers() && !engine.paged, "without --paged-attention",
       {"trace-kv", "dump-block-table"});
  note(options.raw, "with --raw", {"think"});
  note(!options.quantize.activation_aware, "with --method rtn", {"text", "limit"});
}

void TakeNotes(const FlagTable& table, Options* options) {
  std::vector<std::string>& notes = options->notes;
  for (const Flag& flag : table.flags) {
    if (flag.use != FlagUse::kNoEffect || !options->args.given(flag.name)) continue;
    notes.push_back((options->args.on(flag.name) ? "--" : "--no-") + flag.name + " " + flag.why);
  }
  NoteUseless(*options, &notes);
  if (options->format == OutputFormat::kJson && options->stream.value_or(false)) {
    notes.push_back("--stream has no effect with --output-format json (jsonl streams)");
  }
  if (options->request.num_samples > 1 && options->format != OutputFormat::kJsonLines &&
      options->stream.value_or(false)) {
    notes.push_back("--stream has no effect with --num-samples (--output-format jsonl streams)");
    options->stream = false;
  }
  if (options->request.beam_width > 1 && options->stream.value_or(false)) {
    notes.push_back("--stream has no effect with --beam-width: the answer is chosen at the end");
    options->stream = false;
  }
}

}  // namespace

Options::Options() {
  engine.paged = false;
  engine.use_graph = true;
  engine.max_num_seqs = 16;
  image.max_pixels = kMaxPixels;
}

StatusOr<Options> ReadOptions(const std::vector<std::string>& arguments, FlagPrograms program) {
  Options options;
  const FlagTable table = FlagsOf(program, options);
  Options scratch;
  KU_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      WithConfigFile(arguments, FlagsOf(program, scratch), "config"));
  KU_ASSIGN_OR_RETURN(options.args, ParseArgs(all, table));
  if (options.args.help || options.args.version) return options;
  KU_RETURN_IF_ERROR(TakePositionals(program, &options));
  FinishOutput(&options);
  if (program == FlagPrograms::kBatch) KU_RETURN_IF_ERROR(FinishBatch(&options));
  if (program == FlagPrograms::kServe) FinishServe(&options);
  if (program == FlagPrograms::kEval) KU_RETURN_IF_ERROR(FinishEval(&options));
  options.quantize.scheme.symmetric = !options.quantize.asymmetric;
  KU_RETURN_IF_ERROR(CheckTogether(options));
  if (options.args.given("now")) KU_RETURN_IF_ERROR(ParseNow(options.now_text, &options.now));
  options.task = TaskOf(options, program);
  options.media = MediaOf(options);
  TakeNotes(table, &options);
  if (Contains(FlagPrograms::kPrompts, program)) {
    // All beams are returned as answers, and the answers run at the same time.
    Request& request = options.request;
    request.num_samples = std::max(request.num_samples, request.beam_width);
    request.keep_logits = !options.logits_file.empty();
    options.engine.max_num_seqs = request.num_samples;
  }
  return options;
}

bool AsksForJson(const std::vector<std::string>& arguments, FlagPrograms program) {
  if (program == FlagPrograms::kEval) {
    return std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  }
  if (!Contains(FlagPrograms::kPrompts, program)) return false;
  bool json = false;
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    if (name != "-o" && name != "--output-format") continue;
    const std::string value = equals != std::string::npos ? arguments[i].substr(equals + 1)
                              : i + 1 < arguments.size()  ? arguments[i + 1]
                                                          : "";
    json = value == "json" || value == "jsonl";
  }
  return json;
}

}  // namespace kuiper::demo
