#include "demo/chat.h"

#include <unistd.h>

#include <utility>

#include "demo/exit_code.h"
#include "demo/prompt_source.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

constexpr char kEndOfMultiline[] = "/end";

bool Streams(const ProgramRun& run) {
  if (run.options.format == OutputFormat::kJsonLines) return true;
  const bool terminal = run.console.output_is_terminal();
  return run.options.stream.value_or(terminal && run.options.format != OutputFormat::kJson);
}

}  // namespace

Chat::Chat(ProgramRun& run, std::unique_ptr<Engine> engine, Conversation conversation,
           TemplateOptions chat)
    : run_(run),
      console_(run.console),
      engine_(std::move(engine)),
      answerer_(run.options, *engine_, run.console, Streams(run)),
      conversation_(std::move(conversation)),
      chat_(std::move(chat)),
      parameters_(run.options.request) {}

int Chat::Loop(int input_fd) {
  if (conversation_.waits_for_answer()) {
    Conversation before = conversation_;
    before.DropLastTurn();
    Answer(std::move(before));
  }
  LineReader reader(input_fd);
  while (console_.output_status().ok()) {
    const std::optional<std::string> message = ReadMessage(reader);
    if (!message.has_value()) {
      console_.Prompt("\n");
      break;
    }
    if (message->empty()) continue;
    const bool literal = message->starts_with("//");
    if (message->starts_with("/") && !literal) {
      if (!Command(*message)) break;
    } else {
      Ask(literal ? message->substr(1) : *message);
    }
  }
  if (!reader.status().ok()) Fail(reader.status(), false);
  if (!console_.output_status().ok() && exit_code_ == 0) exit_code_ = kExitInternal;
  return exit_code_;
}

// One line, lines joined by a trailing backslash, or what /multiline collects.
std::optional<std::string> Chat::ReadMessage(LineReader& reader) {
  std::string message;
  bool more = false;
  while (true) {
    console_.Prompt(more || multiline_ ? "... " : ">>> ");
    const std::optional<std::string> line = reader.Next();
    if (!line.has_value()) {
      multiline_ = false;
      return message.empty() ? std::nullopt : std::optional(message);
    }
    if (multiline_ && *line == kEndOfMultiline) {
      multiline_ = false;
      return message;
    }
    if (more) message += "\n";
    more = multiline_ || line->ends_with("\\");
    message += multiline_ || !more ? *line : line->substr(0, line->size() - 1);
    if (!more) return message;
  }
}

void Chat::Ask(const std::string& text) {
  if (!IsValidUtf8(text)) {
    Fail(Status(StatusCode::kInput, "the message is not valid UTF-8"), true);
    return;
  }
  Conversation before = conversation_;
  conversation_.AddUser(text);
  Answer(std::move(before));
}

void Chat::Answer(Conversation before) {
  LimitHistory(run_, &conversation_);
  const Result result = answerer_.Answer(answerer_.BuildPrompt(chat_, &conversation_), parameters_,
                                         run_.options.show_thinking);
  const Completion& c = result.completion;
  if (c.finish != FinishReason::kNone) block_table_ = c.pages;
  // On a terminal people see what went wrong; the exit code is for scripts.
  if (!result.ok() && exit_code_ == 0 && !console_.input_is_terminal()) {
    exit_code_ = result.exit_code();
  }
  if (!result.ok() || c.tokens.empty()) {
    conversation_ = std::move(before);
    return;
  }
  ++totals_.turns;
  totals_.prompt_tokens += c.prompt_tokens;
  totals_.cached_tokens += c.cached_tokens;
  totals_.generated_tokens += static_cast<int64_t>(c.tokens.size());
  totals_.prefill_ms += c.prefill_ms;
  totals_.decode_ms += c.decode_ms;
  conversation_.AddAnswer(c, chat_, !run_.options.request.ignore_eos, *engine_->tokenizer());
  SaveSession();
}

void Chat::SaveSession() {
  if (run_.options.session_file.empty()) return;
  const Status saved = SaveConversation(conversation_, ModelName(run_.options.engine.model_path),
                                        run_.options.session_file);
  if (!saved.ok()) Fail(saved, false);
}

// A failed turn answers in the output's own form; a failed command only says so.
void Chat::Fail(const Status& status, bool as_answer) {
  if (as_answer) {
    answerer_.Answer(status, parameters_, false);
  } else {
    console_.Error(status);
  }
  if (exit_code_ == 0 && !console_.input_is_terminal()) exit_code_ = ExitCodeOf(status.code());
}

StatusOr<int> RunChat(ProgramRun& run, const PromptInput& input) {
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(run.options, input));
  KU_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, LoadEngine(run, run.options.engine));
  const TemplateOptions chat = ChatTemplateOf(run.options, input, engine->chat_family());
  AdviseOnThinking(run, chat);
  if (run.console.input_is_terminal()) {
    run.console.Info("Chat with " + ModelName(run.options.engine.model_path) +
                     ". /help lists the commands, /quit ends.");
  }
  return Chat(run, std::move(engine), std::move(conversation), chat).Loop(STDIN_FILENO);
}

}  // namespace kuiper::demo
