// kuiper_batch: reads requests a little ahead of the engine, keeps it full, and writes an answer as
// soon as all answers before it are written.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "demo/batch_input.h"
#include "demo/batch_output.h"
#include "demo/batch_request.h"
#include "demo/exit_code.h"
#include "demo/signals.h"
#include "demo/text_run.h"
#include "kuiper/base/clock.h"

namespace kuiper::demo {
namespace {

// Requests that are read and not written, for each one that may run: a long answer holds up the
// lines behind it, not the work on them, and this bounds what a kill can cost.
constexpr size_t kReadAhead = 16;

class Batch {
 public:
  Batch(Run& run, BatchInput& input, BatchOutput& output, Engine& engine)
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
    bool chat;
    int num_running;                  // choices that have not ended
    std::vector<Completion> choices;  // by their number
  };

  // Adds requests while there is room for them.
  void Fill();
  void Start(const BatchInput::Item& item);
  StatusOr<Prompt> BuildPrompt(const BatchRequest& request);
  void FinishChoice(int64_t id, int choice);
  void Store(const BatchLine& line, std::string text);
  Status WriteReady();
  void ShowProgress();
  void Summarise() const;

  Run& run_;
  BatchInput& input_;
  BatchOutput& output_;
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

void Batch::Store(const BatchLine& line, std::string text) {
  const size_t index = static_cast<size_t>(line.number - num_written_ - 1);
  if (lines_.size() <= index) lines_.resize(index + 1);
  lines_[index] = std::move(text);
}

StatusOr<Prompt> Batch::BuildPrompt(const BatchRequest& request) {
  if (!request.ids.empty()) return Prompt{request.ids};
  if (!request.chat) return Prompt{EncodeRaw(*engine_.tokenizer(), *request.input.text)};
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(run_.options, request.input));
  const TemplateOptions chat = ChatTemplateOf(run_.options, request.input, engine_.chat_family());
  return answerer_.BuildPrompt(chat, &conversation);
}

void Batch::Start(const BatchInput::Item& item) {
  const auto add = [&]() -> StatusOr<int64_t> {
    KU_RETURN_IF_ERROR(item.json.status());
    KU_ASSIGN_OR_RETURN(const BatchRequest wanted, ParseBatchRequest(*item.json, run_.options));
    KU_ASSIGN_OR_RETURN(const Prompt prompt, BuildPrompt(wanted));
    Request request = answerer_.MakeRequest(prompt, wanted.generation);
    request.stop = wanted.stop;
    request.ignore_eos = wanted.ignore_eos;
    request.num_samples = wanted.num_choices;
    request.beam_width = wanted.beam_width;
    request.length_penalty = wanted.length_penalty;
    // A completion is all of the text.
    if (!wanted.chat) request.split_thinking = request.starts_thinking = false;
    KU_ASSIGN_OR_RETURN(const int64_t id, engine_.Add(std::move(request)));
    active_[id] = {item.line, wanted.chat, wanted.num_choices,
                   std::vector<Completion>(wanted.num_choices)};
    return id;
  };
  const StatusOr<int64_t> id = add();
  if (id.ok()) {
    Store(item.line, "");
    return;
  }
  ++num_failed_;
  Store(item.line, BatchErrorLine(item.line, id.status()));
}

void Batch::Fill() {
  const size_t most = static_cast<size_t>(engine_.config().max_num_seqs);
  // As many again wait in the engine, so that a place is taken in the step after it is free.
  while (!at_end_ && active_.size() < 2 * most && lines_.size() < kReadAhead * most) {
    const std::optional<BatchInput::Item> item = input_.Next();
    at_end_ = !item.has_value();
    if (!at_end_) Start(*item);
  }
}

void Batch::FinishChoice(int64_t id, int choice) {
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
    Store(request.line, BatchErrorLine(request.line, failed->error));
  } else {
    Store(request.line, BatchAnswerLine(request.line, request.chat, model_, request.choices));
  }
  active_.erase(id);
}

Status Batch::WriteReady() {
  std::string text;
  while (!lines_.empty() && !lines_.front().empty()) {
    text += lines_.front();
    lines_.pop_front();
    ++num_written_;
  }
  return text.empty() ? OkStatus() : output_.Write(text);
}

void Batch::ShowProgress() {
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
  char numbers[100];
  std::snprintf(numbers, sizeof(numbers), " requests, %.1f tokens/s, KV %d%%",
                static_cast<double>(num_tokens_) / SecondsSince(begin_),
                kv.pages_total > 0 ? 100 * kv.pages_used / kv.pages_total : 0);
  run_.console.Progress(text + numbers);
}

void Batch::Summarise() const {
  const double seconds = SecondsSince(begin_);
  const int64_t num_new = num_written_ - num_kept_;
  char text[200];
  std::snprintf(text, sizeof(text),
                "Batch: %lld requests, %lld failed, %lld kept from before; %lld prompt and %lld "
                "generated tokens in %.1f s, %.1f tokens/s",
                static_cast<long long>(num_new), static_cast<long long>(num_failed_),
                static_cast<long long>(num_kept_), static_cast<long long>(num_prompt_tokens_),
                static_cast<long long>(num_tokens_), seconds,
                static_cast<double>(num_tokens_) / seconds);
  run_.console.Info(text);
  const KvStats kv = engine_.kv_stats();
  std::snprintf(
      text, sizeof(text),
      "KV cache: %lld of %lld prompt tokens reused, %lld blocks evicted, %lld preemptions "
      "recomputed, %lld swapped",
      static_cast<long long>(kv.tokens_hit), static_cast<long long>(kv.tokens_requested),
      static_cast<long long>(kv.evicted_pages), static_cast<long long>(kv.preempted_recompute),
      static_cast<long long>(kv.preempted_swap));
  run_.console.Info(text);
}

StatusOr<int> Batch::Answer() {
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
Status Resume(Run& run, BatchInput& input, BatchOutput& output) {
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

StatusOr<int> RunBatch(Run& run) {
  const Options& options = run.options;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<BatchInput> input,
                      BatchInput::Open(options.batch_input));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<BatchOutput> output,
                      BatchOutput::Open(options.batch_output, input->fd()));
  KU_RETURN_IF_ERROR(Resume(run, *input, *output));
  if (input->count() > 0 && input->num_read() == input->count()) return kExitOk;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(run, options.engine));
  return Batch(run, *input, *output, *engine).Answer();
}

}  // namespace kuiper::demo
