// kuiper_batch: reads requests a little ahead of the engine, keeps it full, and writes an answer as
// soon as all answers before it are written.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "demo/flags.h"
#include "demo/tasks.h"
#include "kuiper/base/append_file.h"
#include "kuiper/base/clock.h"
#include "kuiper/base/hash.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/batch_input.h"
#include "kuiper/chat/chat_response.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/report/number_text.h"
#include "kuiper/report/result_json.h"

namespace kuiper::demo {
namespace {

// Requests that are read and not written, for each one that may run: a long answer holds up the
// lines behind it, not the work on them, and this bounds what a kill can cost.
constexpr size_t kReadAhead = 16;
constexpr int kPatienceMs = 1000;

// What a run returns whose answers are all there.
int Verdict(ProgramRun& run, int64_t num_failed, int64_t num_requests) {
  if (num_failed == 0) return kExitOk;
  run.console.Warning(std::to_string(num_failed) + " of " + Counted(num_requests, "request") +
                      " failed: see \"error\" in the answers");
  return run.options.strict || num_failed == num_requests ? kExitInternal : kExitOk;
}

// What may stand in bodies as a flat line has it, and all else as flags.
std::string FlatName(std::string_view name) {
  const Parameter* parameter = FindParameter(name);
  return parameter != nullptr && parameter->in_bodies ? parameter->name : FlagName(name);
}

std::string BodyName(std::string_view name) {
  const std::string flat = FlatName(name);
  return flat.starts_with("--") ? flat : "body." + flat;
}

std::string ErrorLine(const BatchLine& line, const Status& status) {
  return BatchErrorLine(line, status, line.is_flat ? FlatName : BodyName);
}

class BatchJob {
 public:
  BatchJob(ProgramRun& run, BatchInput& input, AppendFile& output, Engine& engine,
           const Responder& responder, int64_t num_failed_before)
      : run_(run),
        input_(input),
        output_(output),
        engine_(engine),
        prompter_(run.options, run.console, *engine.tokenizer(), run.context),
        responder_(responder),
        num_kept_(input.num_read()),
        num_failed_before_(num_failed_before),
        num_written_(input.num_read()) {}

  StatusOr<int> Answer();

 private:
  struct Active {
    BatchLine line;
    bool is_chat;
    int num_running;                  // choices that have not ended
    std::vector<Completion> choices;  // by their number
  };

  // Adds requests while there is room for them.
  void Fill();
  void Start(const BatchInput::Item& item);
  StatusOr<Prompt> BuildPrompt(const ChatRequest& request);
  void FinishChoice(int64_t id, int choice);
  void Store(const BatchLine& line, std::string text);
  Status WriteReady();
  std::string ProgressText() const;
  std::string TimeLeft(int64_t done, double seconds) const;
  void Summarise() const;

  ProgramRun& run_;
  BatchInput& input_;
  AppendFile& output_;
  Engine& engine_;
  const Prompter prompter_;
  const Responder& responder_;

  bool at_end_ = false;
  std::map<int64_t, Active> active_;  // by the engine's number
  // Lines behind the last one written; empty while the request runs.
  std::deque<std::string> lines_;
  int64_t num_kept_, num_failed_before_;  // answers of an earlier run
  int64_t num_written_, num_failed_ = 0;
  int64_t num_prompt_tokens_ = 0, num_tokens_ = 0;
  Clock::time_point begin_ = Clock::now();
};

void BatchJob::Store(const BatchLine& line, std::string text) {
  const size_t index = static_cast<size_t>(line.number - num_written_ - 1);
  if (lines_.size() <= index) lines_.resize(index + 1);
  lines_[index] = std::move(text);
}

StatusOr<Prompt> BatchJob::BuildPrompt(const ChatRequest& request) {
  if (!request.request.prompt.empty()) return Prompt{.ids = request.request.prompt};
  if (!request.is_chat) return Prompt{.ids = EncodeRaw(*engine_.tokenizer(), request.text)};
  const PromptInput input = {.messages = request.messages,
                             .folder = FolderOf(run_.options.batch_input)};
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(run_, input));
  StatusOr<Prompt> prompt =
      prompter_.Build(ChatTemplateOf(run_, input), request.request, &conversation);
  if (run_.pictures != nullptr) run_.pictures->KeepOnly({});
  return prompt;
}

void BatchJob::Start(const BatchInput::Item& item) {
  const auto add = [&]() -> StatusOr<int64_t> {
    KU_RETURN_IF_ERROR(item.json.status());
    KU_ASSIGN_OR_RETURN(const ChatRequest wanted,
                        ParseBatchLine(item.line, *item.json, run_.options.request));
    KU_ASSIGN_OR_RETURN(Prompt prompt, BuildPrompt(wanted));
    KU_ASSIGN_OR_RETURN(const int64_t id,
                        engine_.Add(MakeRequest(std::move(prompt), wanted.request)));
    const int choices = wanted.request.num_samples;
    active_[id] = {item.line, wanted.is_chat, choices, std::vector<Completion>(choices)};
    return id;
  };
  const StatusOr<int64_t> id = add();
  if (id.ok()) {
    Store(item.line, "");
    return;
  }
  ++num_failed_;
  Store(item.line, ErrorLine(item.line, id.status()));
}

void BatchJob::Fill() {
  const size_t most = static_cast<size_t>(engine_.config().max_num_seqs);
  // As many again wait in the engine, so that a place is taken in the step after it is free.
  while (!at_end_ && active_.size() < 2 * most && lines_.size() < kReadAhead * most) {
    // What has not come yet is waited for where there is nothing else to do; not for ever, so that
    // no signal is missed.
    const bool idle = active_.empty() && lines_.empty();
    if (!input_.Ready(idle ? kPatienceMs : 0)) return;
    const std::optional<BatchInput::Item> item = input_.Next();
    at_end_ = !item.has_value();
    if (!at_end_) Start(*item);
  }
}

void BatchJob::FinishChoice(int64_t id, int choice) {
  Active& request = active_.at(id);
  request.choices.at(choice) = engine_.Take(id, choice).value();
  run_.watch->WriteTable(id, choice, request.choices[choice], request.line.custom_id);
  if (--request.num_running > 0) return;
  num_prompt_tokens_ += request.choices[0].prompt_tokens;
  const auto failed = std::find_if(
      request.choices.begin(), request.choices.end(), [](const Completion& completion) {
        return completion.finish == FinishReason::kError || completion.tokens.empty();
      });
  if (failed != request.choices.end()) {
    ++num_failed_;
    Store(request.line, ErrorLine(request.line, failed->error));
  } else {
    Store(request.line,
          BatchAnswerLine(request.line, request.is_chat, responder_, request.choices));
  }
  active_.erase(id);
}

Status BatchJob::WriteReady() {
  std::string text;
  while (!lines_.empty() && !lines_.front().empty()) {
    text += lines_.front();
    lines_.pop_front();
    ++num_written_;
  }
  return text.empty() ? OkStatus() : output_.Write(text);
}

std::string BatchJob::ProgressText() const {
  const int64_t done = input_.num_read() - static_cast<int64_t>(active_.size());
  const double seconds = SecondsSince(begin_);
  std::string text;
  if (input_.count() > 0) text = ProgressBar(done, input_.count()) + ' ';
  text += std::to_string(done);
  if (input_.count() > 0) text += '/' + std::to_string(input_.count());
  const KvStats kv = engine_.kv_stats();
  return text +
         Format(", %ld failed, %.1f tokens/s, KV %d%%", num_failed_,
                static_cast<double>(num_tokens_) / seconds,
                kv.pages_total > 0 ? 100 * kv.pages_used / kv.pages_total : 0) +
         TimeLeft(done, seconds);
}

// At the pace of the requests that are done.
std::string BatchJob::TimeLeft(int64_t done, double seconds) const {
  if (input_.count() == 0 || done <= num_kept_) return "";
  const double left =
      seconds * static_cast<double>(input_.count() - done) / static_cast<double>(done - num_kept_);
  return TimeLeftText(left);
}

void BatchJob::Summarise() const {
  const double seconds = SecondsSince(begin_);
  run_.console.Info(
      Format("Batch: %s, %ld failed, %ld kept from before; %ld prompt and %ld generated "
             "tokens in %.1f s, %.1f tokens/s",
             Counted(num_written_ - num_kept_, "request").c_str(), num_failed_, num_kept_,
             num_prompt_tokens_, num_tokens_, seconds, static_cast<double>(num_tokens_) / seconds));
  const KvStats kv = engine_.kv_stats();
  run_.console.Info(
      Format("KV cache: %ld of %ld prompt tokens reused, %ld blocks evicted, %ld preemptions "
             "recomputed, %ld swapped",
             kv.tokens_hit, kv.tokens_requested, kv.evicted_pages, kv.preempted_recompute,
             kv.preempted_swap));
  run_.console.Line(LogLevel::kDebug, "ran: " + RanJson(engine_.run_facts()));
}

StatusOr<int> BatchJob::Answer() {
  InterruptScope interrupt;
  while (true) {
    Fill();
    KU_RETURN_IF_ERROR(WriteReady());
    if (interrupt.interrupted() || (at_end_ && active_.empty())) break;
    if (active_.empty()) continue;
    for (const TokenEvent& event : engine_.Step()) {
      if (event.token.has_value()) ++num_tokens_;
      if (event.finish != FinishReason::kNone) FinishChoice(event.request, event.sample);
    }
    run_.console.Progress([this] { return ProgressText(); });
  }
  run_.console.EndProgress();
  if (run_.options.stats) Summarise();
  KU_RETURN_IF_ERROR(input_.status());
  if (interrupt.interrupted()) return kExitInterrupted;
  return Verdict(run_, num_failed_ + num_failed_before_, num_written_);
}

// Why an output is left alone.
Status NotOurs(const ProgramRun& run, int64_t line, const std::string& what) {
  return Status(StatusCode::kInput,
                run.options.batch_output + ", line " + std::to_string(line) + " " + what,
                "choose another " + FlagName("output") + ", or remove this one to begin again");
}

// Reads past the requests whose answers are in the output; returns how many of them failed.
StatusOr<int64_t> Resume(const ProgramRun& run, const std::string& fingerprint, BatchInput& input,
                         AppendFile& output) {
  constexpr char kNoAnswer[] = "is not the answer to the request in that place of the input";
  int64_t num_answers = 0, num_failed = 0;
  while (const std::optional<std::string> answer = output.NextFinished()) {
    const std::optional<BatchInput::Item> item = input.Next();
    const auto json = ParseJson(*answer, StatusCode::kInput, "the line");
    ++num_answers;
    if (!item.has_value() || !json.ok() || !answer->starts_with(BatchAnswerHead(item->line))) {
      return NotOurs(run, num_answers, kNoAnswer);
    }
    const JsonNode* error = json->Find("error");
    const bool failed = error != nullptr && !error->IsNull();
    num_failed += failed;
    if (!failed && FingerprintOf(*json) != fingerprint) {
      return NotOurs(run, num_answers, "is the answer of another model or of other settings");
    }
  }
  if (!output.torn().empty()) {
    std::optional<BatchInput::Item> item = input.Next();
    const std::string head = item.has_value() ? BatchAnswerHead(item->line) : "";
    if (head.empty() || !output.torn().starts_with(head.substr(0, output.torn().size()))) {
      return NotOurs(run, num_answers + 1, kNoAnswer);
    }
    input.PutBack(std::move(*item));
    KU_RETURN_IF_ERROR(output.CutTorn());
  }
  if (num_answers > 0) {
    run.console.Note(run.options.batch_output + " has " + std::to_string(num_answers) +
                     " answers already: going on behind them");
  }
  return num_failed;
}

}  // namespace

std::string Fingerprint(const ProgramRun& run) {
  constexpr const char* kFlags[] = {"attention",
                                    "deterministic",
                                    "dtype",
                                    "image-max-tokens",
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
  if (run.own_template.has_value()) text += "\ntemplate=" + run.own_template->source();
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
  const Responder responder{ModelName(options.engine.model_path), Fingerprint(run)};
  KU_ASSIGN_OR_RETURN(const int64_t num_failed,
                      Resume(run, responder.fingerprint, *input, *output));
  if (input->count() > 0 && input->num_read() == input->count()) {
    return Verdict(run, num_failed, input->count());
  }
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(run, options.engine));
  return BatchJob(run, *input, *output, *engine, responder, num_failed).Answer();
}

}  // namespace kuiper::demo
