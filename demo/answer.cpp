#include "demo/answer.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "demo/program.h"
#include "demo/tasks.h"
#include "kuiper/base/append_file.h"
#include "kuiper/base/fatal.h"
#include "kuiper/base/log.h"
#include "kuiper/base/text.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/report/answer_files.h"
#include "kuiper/report/repetition.h"
#include "kuiper/report/result_json.h"
#include "kuiper/report/statistics.h"
#include "kuiper/terminal/raw_terminal.h"

namespace kuiper::demo {
namespace {

// If generation failed midway, still shows what there is; a failure before the first token shows
// nothing.
void ShowAnswers(const AnswerResult& result, TextWriter* writer, Console& console) {
  const auto show = [&](const Completion& c, bool failed) {
    const bool nothing = c.finish == FinishReason::kInterrupt && c.tokens.empty();
    if (!nothing && (!failed || !c.text.empty())) writer->Finish(c);
    console.EndText();
  };
  show(result.completion, !result.ok());
  if (result.is_beam_search) return;
  for (const Completion& c : result.more) show(c, c.finish == FinishReason::kError);
}

StatusCode CodeOfFault(int exit_code) {
  if (exit_code == kDeviceExitCode) return StatusCode::kUnavailable;
  return exit_code == kLostFileExitCode ? StatusCode::kModel : StatusCode::kInternal;
}

}  // namespace

int ExitCodeOf(const AnswerResult& result) {
  if (!result.ok()) return kuiper::ExitCodeOf(result.status.code());
  return result.is_interrupted() ? kExitInterrupted : kExitOk;
}

Answerer::Answerer(const ProgramRun& run, Engine& engine)
    : options_(run.options),
      engine_(engine),
      console_(run.console),
      stream_(Streams(run)),
      watch_(run.watch.get()),
      pictures_(run.pictures.get()),
      model_(ModelName(run.options.engine.model_path)) {}

void Answerer::TakeFacts(const Prompt& prompt, AnswerResult* result) const {
  result->dropped_turns = prompt.dropped_turns;
  result->dropped_tokens = prompt.dropped_tokens;
  for (const VisionInput& input : prompt.images) {
    const size_t place = result->pictures.size();
    const PictureFacts& facts = result->pictures.emplace_back(input);
    console_.Detail(facts.Title(place) + ": " + facts.Describe());
  }
  if (pictures_ != nullptr) result->picture_ms = pictures_->TakeReadMs();
}

void Answerer::NoteHiddenFacts(const Completion& completion, const Request& parameters) const {
  if (completion.finish == FinishReason::kInterrupt && !completion.tokens.empty()) {
    console_.Note("the answer was interrupted and ends here");
  }
  if (completion.dropped_tokens > 0) {
    console_.Note("the KV cache was full: " + Counted(completion.dropped_tokens, "token") +
                  " slid out of the context (--on-full slide)");
  }
  if (parameters.sampling.seed == kRandomSeed && !completion.tokens.empty()) {
    console_.Note("the seed was " + std::to_string(completion.seed));
  }
  const std::string& last = completion.text.empty() ? completion.reasoning : completion.text;
  if (!console_.output_is_terminal() || !RepeatsItself(last)) return;
  const bool chats = options_.task == Task::kChat;
  const bool greedy = parameters.sampling.temperature == 0;
  std::string hint = "the answer repeats itself: ";
  hint += greedy
              ? std::string(chats ? "/set temp=0.8" : "--temp 0.8") + " samples"
              : std::string("a higher ") + (chats ? "temp (/set temp=1)" : "--temp") + " may help";
  console_.Hint(hint + (chats ? ", and /regen answers again" : ""));
}

void Answerer::WarnOfCut(const AnswerResult& result, const Request& parameters) const {
  std::vector<const Completion*> answers = {&result.completion};
  for (const Completion& c : result.more) answers.push_back(&c);
  const auto cut = std::find_if(answers.begin(), answers.end(), [](const Completion* c) {
    return c->finish == FinishReason::kLength ||
           (c->finish == FinishReason::kContext && c->error.ok());
  });
  if (cut == answers.end()) return;
  const bool chats = options_.task == Task::kChat;
  const bool by_length = (*cut)->finish == FinishReason::kLength;
  std::string text = "the answer was cut ";
  text += by_length
              ? "at " + Counted(parameters.max_new_tokens, "token")
              : "at the end of the context of " + Counted(engine_.config().max_context, "token");
  if ((*cut)->inside_thinking) text += " inside its reasoning";
  const int most = engine_.model_config().decoder.rope.max_position;
  std::vector<std::string> remedies;
  if (by_length) {
    remedies.push_back(chats ? "raise -n (/set max_tokens=N)" : "raise -n");
  } else {
    if (engine_.config().max_context < most) {
      remedies.push_back("raise --max-context (-c " + std::to_string(most) + " at most)");
    }
    if (chats) remedies.push_back("make room by /undo or /clear");
  }
  if ((*cut)->inside_thinking) {
    remedies.push_back(
        chats ? "use --reasoning-budget (/set reasoning_budget=auto) or --think off (/think off)"
              : "use --reasoning-budget auto or --think off");
  }
  for (size_t i = 0; i < remedies.size(); ++i) text += (i == 0 ? ": " : ", or ") + remedies[i];
  console_.Warning(text);
  // Qwen's model cards warn of endless repetition with greedy sampling; an answer that ended by
  // itself did not suffer from it.
  const bool greedy = parameters.sampling.temperature == 0 && parameters.beam_width == 1;
  if (greedy && (*cut)->inside_thinking) {
    console_.Hint(
        "greedy decoding may repeat itself while thinking; --use-generation-config samples as the "
        "model asks");
  }
}

void Answerer::Log(const char* when) const {
  const KvStats kv = engine_.kv_stats();
  if (!kv.paged) return;
  if (watch_ != nullptr) watch_->Flush();
  LogInfo(std::string("paged KV cache ") + when + ": " + std::to_string(kv.pages_free) + " of " +
          std::to_string(kv.pages_total) + " blocks free");
}

AnswerResult Answerer::Answer(StatusOr<Prompt> prompt, const Request& parameters,
                              bool show_thinking) {
  AnswerResult result;
  result.model = model_;
  result.load_ms = engine_.load_ms();
  result.weight_bytes_per_token = engine_.weight_bytes_per_token();
  result.kv = engine_.kv_stats();
  const RunFacts before = engine_.run_facts();
  result.ran = before;
  const TextStyle style = StyleOf(parameters, show_thinking);
  TextWriter writer(style, [this](std::string_view text) { Write(text); });
  Completion so_far;
  // After a fault midway, prints the partial answer, then the error.
  const LastWords last_words([&](int exit_code, const std::string& message) {
    RestoreTerminal();
    result.status = Status(CodeOfFault(exit_code), message);
    result.completion = std::move(so_far);
    result.completion.finish = FinishReason::kError;
    if (!result.completion.text.empty()) writer.Finish(result.completion);
    PrintJson(result);
    console_.Error(result.status);
  });
  const bool had_prompt = prompt.ok();
  if (!had_prompt) {
    result.status = prompt.status();
  } else {
    TakeFacts(*prompt, &result);
    Log("before the request");
    bool first = true;
    const auto on_event = [&](const TokenEvent& event) {
      if (first) Log("during the request");
      first = false;
      result.request = event.request;
      if (!result.is_beam_search) writer.OnEvent(event);
      if (event.sample == 0) {
        so_far.text += event.text;
        so_far.reasoning += event.reasoning;
        if (event.token.has_value()) so_far.tokens.push_back(*event.token);
        ShowHidden(style, so_far);
      }
      return console_.output_status().ok();
    };
    result.is_beam_search = parameters.beam_width > 1;
    const auto on_prompt = [&, n = prompt->ids.size()](int64_t id) { ShowPrompt(id, n); };
    Request request = MakeRequest(*std::move(prompt), parameters);
    TakeAnswers(RunSamples(engine_, std::move(request), on_event, on_prompt), &result);
    console_.EndProgress();
    EndIfFilesChanged(engine_);
  }
  result.kv = engine_.kv_stats();
  result.ran = engine_.run_facts();
  result.pictures_encoded = result.ran->pictures_encoded - before.pictures_encoded;
  result.encode_ms = result.ran->encode_ms - before.encode_ms;
  ShowAnswers(result, &writer, console_);
  if (had_prompt) Log("after the request");
  Finish(&result);
  NoteHiddenFacts(result.completion, parameters);
  WarnOfCut(result, parameters);
  return result;
}

void Answerer::Write(std::string_view text) {
  options_.json() ? console_.Answer(text) : console_.Text(text);
}

TextStyle Answerer::StyleOf(const Request& parameters, bool show_thinking) const {
  TextStyle style{options_.format, stream_, show_thinking, parameters.num_samples > 1};
  // On a terminal, unless hiding was requested.
  style.dim_thinking = stream_ && console_.dims_output() && style.format == OutputFormat::kText &&
                       (show_thinking || !options_.args.given("show-thinking"));
  style.show_thinking |= style.dim_thinking;
  return style;
}

void Answerer::ShowPrompt(int64_t request, size_t prompt_tokens) {
  if (prompt_tokens <= static_cast<size_t>(engine_.config().max_num_batched_tokens)) return;
  const StatusOr<int> done = engine_.num_computed(request);
  if (!done.ok()) return;
  console_.Progress([&] {
    return "reading the prompt: " + std::to_string(*done) + " of " + std::to_string(prompt_tokens) +
           " tokens";
  });
}

void Answerer::ShowHidden(const TextStyle& style, const Completion& so_far) {
  if (stream_ && (style.show_thinking || !so_far.text.empty())) return;
  console_.Progress([&] {
    return std::string(so_far.text.empty() ? "thinking" : "answering") + " ... " +
           Counted(static_cast<int64_t>(so_far.tokens.size()), "token");
  });
}

void Answerer::PrintJson(const AnswerResult& result) {
  if (!options_.json()) return;
  const char* type = options_.format == OutputFormat::kJsonLines ? "done" : "";
  console_.Answer(ResultJson(result, type, engine_.tokenizer(), FlagName) + "\n");
}

void Answerer::TakeAnswers(StatusOr<std::vector<Completion>> completions,
                           AnswerResult* result) const {
  if (!completions.ok()) {
    result->status = completions.status();
    return;
  }
  result->status = completions->front().error;
  for (const Completion& c : *completions) {
    if (result->status.ok() && c.finish == FinishReason::kError) result->status = c.error;
  }
  result->completion = std::move(completions->front());
  result->more.assign(std::make_move_iterator(completions->begin() + 1),
                      std::make_move_iterator(completions->end()));
}

void Answerer::PrintStatistics(const AnswerResult& result) {
  if (console_.is_terse()) return console_.Dim(ShortStatistics(result));
  const bool reuses = engine_.config().prefix_cache;
  for (const std::string& line : StatisticsLines(result, stream_, reuses)) console_.Info(line);
  for (const Completion& completion : result.more) {
    AnswerResult sample = result;
    sample.completion = completion;
    console_.Info(OutputLine(sample));
  }
}

void Answerer::Finish(AnswerResult* result) {
  PrintJson(*result);
  if (watch_ != nullptr) {
    watch_->WriteTable(result->request, 0, result->completion);
    for (int i = 1; const Completion& c : result->more) watch_->WriteTable(result->request, i++, c);
  }
  console_.Line(LogLevel::kDebug, "ran: " + RanJson(*result->ran));
  if (options_.stats && !result->completion.tokens.empty()) PrintStatistics(*result);
  if (!options_.stats_file.empty()) {
    std::ofstream file(options_.stats_file, stats_file_begun_ ? std::ios::app : std::ios::out);
    file << StatsJson(*result, FlagName) << '\n';
    if (!file.flush() && result->status.ok()) result->status = WriteFailed(options_.stats_file);
    stats_file_begun_ = true;
  }
  // If the terminal is lost, so is the output; the conversation is kept.
  if (result->status.ok() && !TerminationAsked()) result->status = console_.output_status();
  if (!result->status.ok()) console_.Error(result->status);
}

bool Answerer::WriteDumps(const AnswerResult& result) {
  Status status;
  if (!options_.tokens_file.empty()) {
    status = WriteTokens(options_.tokens_file, result.completion.tokens);
  }
  if (status.ok() && !options_.logits_file.empty()) {
    status =
        WriteLogits(options_.logits_file, result.completion, engine_.model_config().decoder.vocab);
  }
  if (!status.ok()) console_.Error(status);
  return status.ok();
}

}  // namespace kuiper::demo
