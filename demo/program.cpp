// The order of a run: arguments, tasks without a model, the model's headers, the prompt, the
// weights. All cheap steps that can fail come before expensive ones.
#include "demo/program.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>

#include "demo/chat.h"
#include "demo/flags.h"
#include "demo/tasks.h"
#include "kuiper/base/append_file.h"
#include "kuiper/base/nvidia_device.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/command_line/standard_streams.h"
#include "kuiper/engine/picture_config.h"
#include "kuiper/report/eval_report.h"
#include "kuiper/report/result_json.h"

namespace kuiper::demo {
namespace {

// Reports errors before or instead of an answer: a line on stderr and, in JSON mode, an object on
// stdout.
int Fail(const Program& program, Console& console, const Status& status, bool json,
         const Options* options) {
  console.Error(status);
  if (json && program.flags == FlagPrograms::kEval) {
    console.Answer(EvalJson({.error = status}, FlagName) + "\n");
  } else if (json) {
    const bool lines = options != nullptr && options->format == OutputFormat::kJsonLines;
    const std::string model = options == nullptr ? "" : ModelName(options->engine.model_path);
    console.Answer(ErrorJson(status, model, lines ? "done" : "", FlagName) + "\n");
  }
  return ExitCodeOf(status.code());
}

// If an unavailable device was requested, the engine reports an error; if none was requested, the
// CPU is used.
void ChooseDevice(ProgramRun& run) {
  Options& options = run.options;
  EngineConfig& engine = options.engine;
  if (options.device.has_value()) {
    engine.device = *options.device;
  } else {
    const Device cuda{DeviceType::kCUDA, 0};
    if (Engine::CheckDevice(cuda).ok()) {
      engine.device = cuda;
    } else {
      engine.device = Device{};
      if (HasNvidiaDevice()) {
        run.console.Note("running on the CPU; " + Engine::CheckDevice(cuda).message(FlagName));
      }
    }
  }
  // A CUDA graph of the decode step pays off if launching kernels takes time.
  if (engine.device.type != DeviceType::kCUDA) engine.use_graph = options.args.on("cuda-graph");
  if (engine.device.type == DeviceType::kCPU && engine.ops.determinism == Determinism::kOff) {
    run.console.Note("--deterministic off has no effect on the CPU: its sums have one order");
  }
}

// Checks that the program supports this kind of model, and that the model supports what was
// requested.
Status CheckKind(const ProgramRun& run) {
  const FlagPrograms program = run.program.flags;
  const ModelConfig& config = run.model->config;
  const bool has_vision = config.vision.has_value();
  const std::string holds =
      run.options.engine.model_path + " holds a " + (has_vision ? "Qwen3-VL" : "text") + " model";
  if (has_vision && program == FlagPrograms::kText) {
    return Status(StatusCode::kModel, holds + "; " + run.program.name + " runs text models",
                  "use qwen3_vl_infer");
  }
  if (!has_vision && program == FlagPrograms::kVision) {
    return Status(StatusCode::kModel, holds + "; " + run.program.name + " runs Qwen3-VL models",
                  "use qwen3_infer");
  }
  if (has_vision || run.options.media.empty()) return OkStatus();
  return Status(StatusCode::kModel,
                holds + " (" + config.architecture + "), which takes no " +
                    (run.options.args.given("image") ? "--image" : "--video"),
                "use a Qwen3-VL model");
}

Status MakePictureReader(ProgramRun& run) {
  if (!run.model->config.vision.has_value()) return OkStatus();
  KU_ASSIGN_OR_RETURN(const VisionConfig config, ReadVisionConfig(*run.model));
  ImageOptions options = run.options.image;
  if (!run.options.args.given("max-pixels")) {
    options.max_pixels = std::max(std::min(*options.max_pixels, config.image_pixels.max),
                                  options.min_pixels.value_or(0));
  }
  KU_ASSIGN_OR_RETURN(const ImageProcessor processor, ImageProcessor::Create(config, options));
  run.pictures = std::make_unique<PictureReader>(processor, *run.model->config.vision_tokens);
  return OkStatus();
}

Status OpenModelOf(ProgramRun& run) {
  Options& options = run.options;
  KU_ASSIGN_OR_RETURN(run.model, OpenModel(options.engine.model_path));
  KU_RETURN_IF_ERROR(CheckKind(run));
  KU_RETURN_IF_ERROR(MakePictureReader(run));
  run.model_type = run.model->config.model_type;
  run.context.of_model = run.model->config.decoder.rope.max_position;
  KU_ASSIGN_OR_RETURN(run.context.max_context, Engine::MaxContext(options.engine, *run.model));
  if (options.use_generation_config) {
    const auto given = [&](const Parameter& p) { return options.args.given(FlagOf(p)); };
    const bool chats = options.task == Task::kChat && run.console.is_dialogue();
    const bool by_default = chats && SamplesByDefault(&run.model->generation);
    ApplyGenerationConfig(run.model->generation, given, &options.request);
    if (by_default && options.request.sampling.temperature > 0) {
      std::string values;
      for (const Parameter& parameter : Parameters()) {
        if (!run.model->generation.sampling.contains(parameter.name)) continue;
        values += " " + parameter.typed_name + "=" + VariableText(parameter.of(options.request));
      }
      run.console.Note("the model does not say how to sample, so this chat takes" + values +
                       " (/set temp=0 is greedy)");
    }
    const std::string& unused = run.model->generation.unused;
    if (!unused.empty()) run.console.Note("generation_config.json: without effect here: " + unused);
  }
  return OkStatus();
}

// Checks that the files written at the end can be written, before users wait for weights and an
// answer.
Status CheckOutputs(const Options& options) {
  if (options.task != Task::kAnswer && options.task != Task::kChat) return OkStatus();
  for (const std::string& path : {options.stats_file, options.tokens_file, options.logits_file}) {
    if (!path.empty()) KU_RETURN_IF_ERROR(CheckWritable(path));
  }
  return OkStatus();
}

Status ReadTokenizerOf(ProgramRun& run) {
  const EngineConfig& engine = run.options.engine;
  auto tokenizer = run.options.task == Task::kTokenize ? Engine::ReadTokenizer(engine)
                                                       : Engine::ReadTokenizer(engine, *run.model);
  std::error_code ignored;
  const bool given = !engine.tokenizer_path.empty() && !run.options.args.given("tokenizer");
  if (!tokenizer.ok() && given && !std::filesystem::exists(engine.tokenizer_path, ignored)) {
    return Status(StatusCode::kTokenizer, tokenizer.status().message(),
                  "the second argument is a tokenizer; a prompt is given with -p");
  }
  KU_ASSIGN_OR_RETURN(run.tokenizer, std::move(tokenizer));
  return OkStatus();
}

// A pipe that stays open and silent makes the program look hung.
void NoteWaiting(ProgramRun& run) {
  constexpr int kPatienceMs = 1000;
  if (!ReadsInput(run.options, run.console.input_is_terminal())) return;
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (poll(&input, 1, kPatienceMs) == 0) {
    run.console.Note("reading the prompt from standard input");
  }
}

// --tokenize accepts a folder with only a tokenizer; if there is a model, it must be of the
// program's kind.
bool NeedsModel(const Options& options) {
  if (options.task == Task::kPrintPrompt) return false;
  if (options.task != Task::kTokenize || !options.media.empty()) return true;
  std::error_code ignored;
  const std::filesystem::path path = options.engine.model_path;
  return std::filesystem::exists(path / "config.json", ignored);
}

void NoteThinkingFlags(ProgramRun& run) {
  if (ChatTemplateOf(run, {}).thinking().has_value()) return;
  for (const char* name : {"think", "show-thinking", "reasoning-budget", "history-thinking"}) {
    if (!run.options.args.given(name)) continue;
    run.console.Note(std::string("--") + name + " has no effect: this model has no thinking mode");
  }
}

StatusOr<int> RunTask(ProgramRun& run) {
  const Options& options = run.options;
  if (options.task == Task::kQuantize) return RunQuantize(run);
  KU_RETURN_IF_ERROR(CheckOutputs(options));
  if (NeedsModel(options)) KU_RETURN_IF_ERROR(OpenModelOf(run));
  if (options.task != Task::kTokenize && options.task != Task::kPrintPrompt) ChooseDevice(run);
  if (options.task == Task::kDryRun) return RunDryRun(run);
  if (options.task != Task::kPrintPrompt) KU_RETURN_IF_ERROR(ReadTokenizerOf(run));
  if (options.task == Task::kBenchmark) return RunBenchmark(run);
  if (options.task == Task::kEval) return RunEval(run);
  KU_RETURN_IF_ERROR(ReadChatTemplate(run));
  NoteThinkingFlags(run);
  if (options.task == Task::kBatch) return RunBatch(run);
  if (options.task == Task::kServe) return RunServe(run);
  NoteWaiting(run);
  KU_ASSIGN_OR_RETURN(const PromptInput input,
                      ReadPrompt(options, STDIN_FILENO, run.console.input_is_terminal()));
  if (input.is_default) {
    run.console.Note("no prompt given, asking: " + *input.text);
  }
  const bool has_vision = run.program.flags == FlagPrograms::kVision;
  if (has_vision && options.task == Task::kAnswer && options.media.empty() &&
      input.text.has_value()) {
    run.console.Note("no --image given, running text only");
  }
  switch (options.task) {
    case Task::kChat:
      return RunChat(run, input);
    case Task::kPrintPrompt:
      return RunPrintPrompt(run, input);
    case Task::kTokenize:
      return RunTokenize(run, input);
    case Task::kVerifyPaged:
      return RunVerifyPaged(run, input);
    default:
      return RunAnswer(run, input);
  }
}

// Sets the defaults for chats on a terminal, which differ from those that docs/command_line.md
// guarantees to scripts.
void ApplyTerminalDefaults(Options* options) {
  const ParsedArgs& args = options->args;
  if (!args.given("overflow")) options->drop_oldest = true;
  if (!args.given("max-history")) options->max_history = INT_MAX;
  if (!args.given("use-generation-config")) options->use_generation_config = true;
  if (!args.given("prefix-cache")) options->engine.prefix_cache = true;
}

KvWatchSettings WatchOf(const Options& options, Console& console) {
  KvWatchSettings watch;
  if (options.engine.paged) {
    watch.trace_file = options.trace_file;
    watch.tables_file = options.tables_file;
  }
  watch.wants_map = options.task == Task::kChat;
  if (options.log_level != LogLevel::kDebug) return watch;
  watch.on_line = [&console](const std::string& line) {
    console.Line(LogLevel::kDebug, "KV cache: " + line);
  };
  return watch;
}

int RunOptions(const Program& program, Options& options, Console& console) {
  const Status configured = console.Configure(options, program.name);
  if (!configured.ok()) return Fail(program, console, configured, options.json(), &options);
  if (options.task == Task::kChat && console.is_dialogue()) ApplyTerminalDefaults(&options);
  for (const std::string& note : options.notes) console.Note(note);
  ProgramRun run{program, options, console};
  if (options.answers()) run.watch = std::make_unique<KvWatch>(WatchOf(options, console));
  if (run.watch != nullptr && !run.watch->status().ok()) {
    return Fail(program, console, run.watch->status(), options.json(), &options);
  }
  const StatusOr<int> code = RunTask(run);
  if (!code.ok()) return Fail(program, console, code.status(), options.json(), &options);
  const Status watched = run.watch != nullptr ? run.watch->Close() : OkStatus();
  if (*code != kExitOk) return *code;
  for (const Status& written : {console.output_status(), console.log_status(), watched}) {
    if (!written.ok()) return Fail(program, console, written, false, &options);
  }
  return kExitOk;
}

int RunArguments(const Program& program, const std::vector<std::string>& arguments,
                 Console& console) {
  const bool json = AsksForJson(arguments, program.flags);
  StatusOr<Options> options = ReadOptions(arguments, program.flags);
  if (!options.ok()) return Fail(program, console, options.status(), json, nullptr);
  if (options->args.help || options->args.version) {
    console.Answer(options->args.help ? HelpText(program, options->args.help_all)
                                      : VersionText(program.name));
    const Status written = console.output_status();
    return written.ok() ? kExitOk : Fail(program, console, written, false, nullptr);
  }
  return RunOptions(program, *options, console);
}

}  // namespace

Status OpenConfiguration(ProgramRun& run) {
  KU_RETURN_IF_ERROR(OpenModelOf(run));
  ChooseDevice(run);
  return ReadTokenizerOf(run);
}

std::string ModelName(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path p = std::filesystem::absolute(path, ignored).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  const std::string extension = p.extension().string();
  return extension == ".bin" || extension == ".safetensors" ? p.stem().string()
                                                            : p.filename().string();
}

int RunProgram(const Program& program, const std::vector<std::string>& arguments) {
  OccupyStandardStreams();
  InstallSignalHandlers();
  Console console;
  int code = kExitInternal;
  // This code does not throw, but the standard library may, and no input may end in abort().
  try {
    code = RunArguments(program, arguments, console);
  } catch (const std::bad_alloc&) {
    console.Error(Status(StatusCode::kResourceExhausted, "out of memory"));
    code = kExitMemory;
  } catch (const std::exception& e) {
    console.Error(Status(StatusCode::kInternal, std::string("unexpected: ") + e.what()));
  }
  if (code == kExitInterrupted) DieBySignal();
  return code;
}

}  // namespace kuiper::demo
