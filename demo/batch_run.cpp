// kuiper_batch: the terminal output of a batch (kuiper/chat/batch_job.h), and the settings that its
// answers depend on.
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "demo/flags.h"
#include "demo/tasks.h"
#include "kuiper/base/append_file.h"
#include "kuiper/base/clock.h"
#include "kuiper/base/hash.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/batch_input.h"
#include "kuiper/chat/batch_job.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/io/messages_json.h"
#include "kuiper/io/text_input.h"
#include "kuiper/report/number_text.h"
#include "kuiper/report/result_json.h"

namespace kuiper::demo {
namespace {

// Returns the exit code of a run whose answers are complete.
int Verdict(ProgramRun& run, int64_t num_failed, int64_t num_requests) {
  if (num_failed == 0) return kExitOk;
  run.console.Warning(std::to_string(num_failed) + " of " + Counted(num_requests, "request") +
                      " failed: see \"error\" in the answers");
  return run.options.strict || num_failed == num_requests ? kExitInternal : kExitOk;
}

// Returns a body field's name in a flat line, if it is allowed there; all others are written as
// flags.
std::string FlatName(std::string_view name) {
  if (IsMessagesField(name) || name == "prompt") return std::string(name);
  const Parameter* parameter = FindParameter(name);
  return parameter != nullptr && parameter->in_bodies ? parameter->name : FlagName(name);
}

std::string BodyName(std::string_view name) {
  const std::string flat = FlatName(name);
  return flat.starts_with("--") ? flat : "body." + flat;
}

StatusOr<Prompt> BuildPrompt(const ProgramRun& run, const Prompter& prompter,
                             const ChatRequest& request) {
  const PromptInput input = {.messages = request.messages,
                             .folder = FolderOf(run.options.batch_input)};
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(run, input));
  StatusOr<Prompt> prompt =
      prompter.Build(ChatTemplateOf(run, input), request.request, &conversation);
  if (run.pictures != nullptr) run.pictures->KeepOnly({});
  return prompt;
}

std::string ProgressText(const BatchCounts& counts, int64_t num_kept, int64_t num_requests,
                         const KvStats& kv, double seconds) {
  std::string text;
  if (num_requests > 0) text = ProgressBar(counts.num_done, num_requests) + ' ';
  text += std::to_string(counts.num_done);
  if (num_requests > 0) text += '/' + std::to_string(num_requests);
  text += Format(", %ld failed, %.1f tokens/s, KV %d%%", counts.num_failed,
                 static_cast<double>(counts.num_tokens) / seconds,
                 kv.pages_total > 0 ? 100 * kv.pages_used / kv.pages_total : 0);
  if (num_requests == 0 || counts.num_done <= num_kept) return text;
  // Estimates the time left from the pace of the finished requests.
  return text + TimeLeftText(seconds * static_cast<double>(num_requests - counts.num_done) /
                             static_cast<double>(counts.num_done - num_kept));
}

void Summarise(Console& console, const BatchCounts& counts, int64_t num_kept, const Engine& engine,
               double seconds) {
  console.Info(
      Format("Batch: %s, %ld failed, %ld kept from before; %ld prompt and %ld generated "
             "tokens in %.1f s, %.1f tokens/s",
             Counted(counts.num_written, "request").c_str(), counts.num_failed, num_kept,
             counts.num_prompt_tokens, counts.num_tokens, seconds,
             static_cast<double>(counts.num_tokens) / seconds));
  const KvStats kv = engine.kv_stats();
  console.Info(
      Format("KV cache: %ld of %ld prompt tokens reused, %ld blocks evicted, %ld preemptions "
             "recomputed, %ld swapped",
             kv.tokens_hit, kv.tokens_requested, kv.evicted_pages, kv.preempted_recompute,
             kv.preempted_swap));
  console.Line(LogLevel::kDebug, "ran: " + RanJson(engine.run_facts()));
}

StatusOr<int> Answer(ProgramRun& run, const BatchResumption& before, BatchInput& input,
                     AppendFile& output, Responder responder) {
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(run, run.options.engine));
  const Prompter prompter(run.options, run.console, *engine->tokenizer(), run.context);
  const Clock::time_point begin = Clock::now();
  InterruptScope interrupt;
  BatchHost host{run.options.request, std::move(responder), FlatName, BodyName, {}, {}, {}, {}};
  host.build_prompt = [&](const ChatRequest& request) {
    return BuildPrompt(run, prompter, request);
  };
  host.on_answer = [&](int64_t request, int choice, const Completion& answer,
                       const std::optional<std::string>& custom_id) {
    EndIfFilesChanged(*engine);
    run.watch->WriteTable(request, choice, answer, custom_id);
  };
  host.is_interrupted = [&] { return interrupt.interrupted(); };
  host.on_step = [&](const BatchCounts& counts) {
    run.console.Progress([&] {
      return ProgressText(counts, before.num_answers, input.count(), engine->kv_stats(),
                          SecondsSince(begin));
    });
  };
  BatchJob job(input, output, *engine, host);
  KU_RETURN_IF_ERROR(job.Run());
  run.console.EndProgress();
  const BatchCounts& counts = job.counts();
  if (run.options.stats) {
    Summarise(run.console, counts, before.num_answers, *engine, SecondsSince(begin));
  }
  KU_RETURN_IF_ERROR(input.status());
  if (interrupt.interrupted()) return kExitInterrupted;
  return Verdict(run, counts.num_failed + before.num_failed,
                 counts.num_written + before.num_answers);
}

}  // namespace

std::string Fingerprint(const ProgramRun& run) {
  constexpr const char* kFlags[] = {"attention",
                                    "deterministic",
                                    "dtype",
                                    "image-max-tokens",
                                    "image-scaling",
                                    "max-context",
                                    "max-pixels",
                                    "min-pixels",
                                    "history-thinking",
                                    "kv-cache-dtype",
                                    "on-full",
                                    "overflow",
                                    "now",
                                    "system-prompt",
                                    "think",
                                    "use-generation-config",
                                    "video-fps"};
  Options options = run.options;
  const FlagTable table = FlagsOf(FlagPrograms::kBatch, options);
  std::string text =
      "model=" + HashText(run.model->Hash()) + "\ntokenizer=" + HashText(run.tokenizer->Hash());
  for (const Parameter& parameter : Parameters()) {
    text += '\n' + parameter.name + '=' + VariableText(parameter.of(options.request));
  }
  for (const char* name : kFlags) {
    const Flag* flag = table.Find(name);
    if (flag != nullptr) text += '\n' + flag->name + '=' + VariableText(flag->variable);
  }
  if (options.engine.int8_head) text += "\nlm-head-dtype=int8";
  if (options.engine.int8_activations) text += "\nactivation-dtype=int8";
  if (run.chat_template.has_value()) text += "\ntemplate=" + run.chat_template->source();
  text += "\ndevice=" + DeviceName(run.options.engine.device);
  return "fp_" + HashText(Fnv1a64OfText(text));
}

StatusOr<int> RunBatch(ProgramRun& run) {
  const Options& options = run.options;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<BatchInput> input,
                      BatchInput::Open(options.batch_input));
  if (isatty(input->fd()) != 0) {
    run.console.Note("reading requests from the terminal, one JSON object per line; Ctrl-D ends");
  }
  struct stat from = {}, to = {};
  if (fstat(input->fd(), &from) == 0 && stat(options.batch_output.c_str(), &to) == 0 &&
      S_ISREG(to.st_mode) && from.st_dev == to.st_dev && from.st_ino == to.st_ino) {
    return Status(StatusCode::kInvalidArgument, "--input and --output are the same file");
  }
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<AppendFile> output,
                      AppendFile::Open(options.batch_output));
  Responder responder{ModelName(options.engine.model_path), Fingerprint(run)};
  KU_ASSIGN_OR_RETURN(const BatchResumption before,
                      ResumeBatch(*input, *output, options.batch_output, responder.fingerprint));
  if (before.num_answers > 0) {
    run.console.Note(options.batch_output + " already has " + std::to_string(before.num_answers) +
                     " answers; resuming after them");
  }
  if (input->count() > 0 && input->num_read() == input->count()) {
    return Verdict(run, before.num_failed, input->count());
  }
  return Answer(run, before, *input, *output, std::move(responder));
}

}  // namespace kuiper::demo
