// kuiper_batch: reads requests a little ahead of the engine, keeps it full, and writes an answer as
// soon as all answers before it are written.
#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "demo/batch_input.h"
#include "demo/exit_code.h"
#include "demo/report.h"
#include "demo/signals.h"
#include "demo/tasks.h"
#include "kuiper/base/append_file.h"
#include "kuiper/base/clock.h"
#include "kuiper/chat/chat_response.h"

namespace kuiper::demo {
namespace {

// Requests that are read and not written, for each one that may run: a long answer holds up the
// lines behind it, not the work on them, and this bounds what a kill can cost.
constexpr size_t kReadAhead = 16;

class BatchJob {
 public:
  BatchJob(ProgramRun& run, BatchInput& input, AppendFile& output, Engine& engine)
      : run_(run),
        input_(input),
        output_(output),
        engine_(engine),
        answerer_(run.options, engine, run.console, false),
        model_(ModelName(run.options.engine.model_path)),
        num_kept_(input.num_read()),
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
  void ShowProgress();
  void Summarise() const;

  ProgramRun& run_;
  BatchInput& input_;
  AppendFile& output_;
  Engine& engine_;
  Answerer answerer_;
  std::string model_;

  bool at_end_ = false;
  std::map<int64_t, Active> active_;  // by the engine's number
  // Lines behind the last one written; empty while the request runs.
  std::deque<std::string> lines_;
  int64_t num_kept_, num_written_, num_failed_ = 0;
  int64_t num_prompt_tokens_ = 0, num_tokens_ = 0;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

void BatchJob::Store(const BatchLine& line, std::string text) {
  const size_t index = static_cast<size_t>(line.number - num_written_ - 1);
  if (lines_.size() <= index) lines_.resize(index + 1);
  lines_[index] = std::move(text);
}

StatusOr<Prompt> BatchJob::BuildPrompt(const ChatRequest& request) {
  if (!request.request.prompt.empty()) return Prompt{request.request.prompt};
  if (!request.is_chat) return Prompt{EncodeRaw(*engine_.tokenizer(), request.text)};
  const PromptInput input = {.messages = request.messages};
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(run_.options, input));
  const TemplateOptions chat = ChatTemplateOf(run_.options, input, engine_.chat_family());
  return answerer_.BuildPrompt(chat, &conversation);
}

void BatchJob::Start(const BatchInput::Item& item) {
  const auto add = [&]() -> StatusOr<int64_t> {
    KU_RETURN_IF_ERROR(item.json.status());
    KU_ASSIGN_OR_RETURN(const ChatRequest wanted, ParseBatchLine(*item.json, run_.options.request));
    KU_ASSIGN_OR_RETURN(const Prompt prompt, BuildPrompt(wanted));
    Request request = answerer_.MakeRequest(prompt, wanted.request);
    // A completion is all of the text.
    if (!wanted.is_chat) request.split_thinking = request.starts_thinking = false;
    KU_ASSIGN_OR_RETURN(const int64_t id, engine_.Add(std::move(request)));
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
  Store(item.line, BatchErrorLine(item.line, id.status(), FlagName));
}

void BatchJob::Fill() {
  const size_t most = static_cast<size_t>(engine_.config().max_num_seqs);
  // As many again wait in the engine, so that a place is taken in the step after it is free.
  while (!at_end_ && active_.size() < 2 * most && lines_.size() < kReadAhead * most) {
    const std::optional<BatchInput::Item> item = input_.Next();
    at_end_ = !item.has_value();
    if (!at_end_) Start(*item);
  }
}

void BatchJob::FinishChoice(int64_t id, int choice) {
  Active& request = active_.at(id);
  request.choices.at(choice) = engine_.Take(id, choice).value();
  if (--request.num_running > 0) return;
  num_prompt_tokens_ += request.choices[0].prompt_tokens;
  const auto failed = std::find_if(
      request.choices.begin(), request.choices.end(), [](const Completion& completion) {
        return completion.finish == FinishReason::kError || completion.tokens.empty();
      });
  if (failed != request.choices.end()) {
    ++num_failed_;
    Store(request.line, BatchErrorLine(request.line, failed->error, FlagName));
  } else {
    const std::string number = std::to_string(request.line.number);
    Store(request.line, BatchAnswerLine(request.line, ChatResponse(request.is_chat, number, model_,
                                                                   request.choices)));
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

void BatchJob::ShowProgress() {
  if (SecondsSince(shown_) < 0.1) return;
  shown_ = Clock::now();
  const int64_t done = input_.num_read() - static_cast<int64_t>(active_.size());
  std::string text;
  if (input_.count() > 0) {
    constexpr int64_t kWidth = 24;
    text.assign(static_cast<size_t>(kWidth * done / input_.count()), '#');
    text.append(kWidth - text.size(), '.');
    text += ' ';
  }
  text += std::to_string(done);
  if (input_.count() > 0) text += '/' + std::to_string(input_.count());
  const KvStats kv = engine_.kv_stats();
  run_.console.Progress(text +
                        Format(" requests, %.1f tokens/s, KV %d%%",
                               static_cast<double>(num_tokens_) / SecondsSince(begin_),
                               kv.pages_total > 0 ? 100 * kv.pages_used / kv.pages_total : 0));
}

void BatchJob::Summarise() const {
  const double seconds = SecondsSince(begin_);
  run_.console.Info(
      Format("Batch: %ld requests, %ld failed, %ld kept from before; %ld prompt and %ld generated "
             "tokens in %.1f s, %.1f tokens/s",
             num_written_ - num_kept_, num_failed_, num_kept_, num_prompt_tokens_, num_tokens_,
             seconds, static_cast<double>(num_tokens_) / seconds));
  const KvStats kv = engine_.kv_stats();
  run_.console.Info(
      Format("KV cache: %ld of %ld prompt tokens reused, %ld blocks evicted, %ld preemptions "
             "recomputed, %ld swapped",
             kv.tokens_hit, kv.tokens_requested, kv.evicted_pages, kv.preempted_recompute,
             kv.preempted_swap));
}

StatusOr<int> BatchJob::Answer() {
  InterruptScope interrupt;
  while (true) {
    Fill();
    KU_RETURN_IF_ERROR(WriteReady());
    if (interrupt.interrupted() || (at_end_ && active_.empty())) break;
    for (const TokenEvent& event : engine_.Step()) {
      if (event.token.has_value()) ++num_tokens_;
      if (event.finish != FinishReason::kNone) FinishChoice(event.request, event.sample);
    }
    ShowProgress();
  }
  run_.console.EndProgress();
  if (run_.options.stats) Summarise();
  KU_RETURN_IF_ERROR(input_.status());
  return interrupt.interrupted() ? kExitInterrupted : kExitOk;
}

// Reads past the requests whose answers are in the output.
Status Resume(ProgramRun& run, BatchInput& input, AppendFile& output) {
  while (const std::optional<std::string> answer = output.NextFinished()) {
    const std::optional<BatchInput::Item> item = input.Next();
    const auto json = ParseJson(*answer, StatusCode::kInput, "the line");
    if (item.has_value() && json.ok() && json->Find("response") != nullptr &&
        CustomIdOf(*json) == item->line.custom_id) {
      continue;
    }
    const std::string line =
        std::to_string(item.has_value() ? input.num_read() : input.count() + 1);
    return Status(StatusCode::kInput,
                  run.options.batch_output + ", line " + line +
                      " is not the answer to the request in that place of the input",
                  "choose another --output, or remove this one to begin again");
  }
  if (input.num_read() > 0) {
    run.console.Note(run.options.batch_output + " has " + std::to_string(input.num_read()) +
                     " answers already: going on behind them");
  }
  return OkStatus();
}

}  // namespace

StatusOr<int> RunBatch(ProgramRun& run) {
  const Options& options = run.options;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<BatchInput> input,
                      BatchInput::Open(options.batch_input));
  struct stat from = {}, to = {};
  if (fstat(input->fd(), &from) == 0 && stat(options.batch_output.c_str(), &to) == 0 &&
      S_ISREG(to.st_mode) && from.st_dev == to.st_dev && from.st_ino == to.st_ino) {
    return Status(StatusCode::kInvalidArgument, "--input and --output are the same file");
  }
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<AppendFile> output,
                      AppendFile::Open(options.batch_output));
  KU_RETURN_IF_ERROR(Resume(run, *input, *output));
  if (input->count() > 0 && input->num_read() == input->count()) return kExitOk;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(run, options.engine));
  return BatchJob(run, *input, *output, *engine).Answer();
}

}  // namespace kuiper::demo
