#include "demo/chat.h"

#include <unistd.h>

#include <utility>

#include "demo/prompt_source.h"
#include "kuiper/base/trim.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/io/text_input.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {

Chat::Chat(ProgramRun& run, std::unique_ptr<Engine> engine, std::unique_ptr<SessionFile> session,
           Conversation conversation, TemplateOptions chat, std::vector<ContentPart> media)
    : run_(run),
      console_(run.console),
      engine_(std::move(engine)),
      session_(std::move(session)),
      answerer_(run, *engine_),
      prompter_(run.options, run.console, *engine_->tokenizer(), run.context),
      conversation_(std::move(conversation)),
      chat_(std::move(chat)),
      parameters_(run.options.request),
      attachments_(run.pictures.get(), std::move(media)),
      input_(console_, STDIN_FILENO) {}

int Chat::Loop() {
  if (conversation_.waits_for_answer()) {
    Conversation before = conversation_;
    before.DropLastTurn();
    Answer(std::move(before));
  }
  bool first = true;
  while (console_.output_status().ok() && !TerminationAsked()) {
    std::optional<std::string> message = input_.ReadMessage();
    if (!message.has_value()) break;
    if (std::exchange(first, false)) message = WithoutByteOrderMark(std::move(*message));
    if (!Handle(*message)) break;
  }
  if (TerminationAsked() || input_.interrupted()) return kExitInterrupted;
  if (!input_.status().ok()) Fail(input_.status(), false);
  if (!console_.output_status().ok() && exit_code_ == 0) exit_code_ = kExitInternal;
  return exit_code_;
}

bool Chat::Handle(const std::string& message) {
  const std::string trimmed(Trimmed(message));
  if (trimmed.empty()) return true;
  const bool one_line = message.find('\n') == std::string::npos;
  const bool literal = trimmed.starts_with("//");
  const bool names_command = trimmed.starts_with("/") || !CommandOf(trimmed).empty();
  if (one_line && names_command && !literal) return Command(trimmed);
  Ask(literal ? trimmed.substr(1) : message);
  return true;
}

void Chat::Ask(const std::string& text) {
  if (!IsValidUtf8(text)) {
    Fail(Status(StatusCode::kInput, "the message is not valid UTF-8"), true);
    return;
  }
  Conversation before = conversation_;
  conversation_.AddUser(attachments_.text() + text, attachments_.media());
  if (Answer(std::move(before))) return attachments_.Clear(conversation_);
  if (!attachments_.empty())
    console_.Note("attachments are kept for the next message; /undo removes them");
}

bool Chat::Answer(Conversation before) {
  const AnswerResult result = answerer_.Answer(prompter_.Build(chat_, parameters_, &conversation_),
                                               parameters_, run_.options.show_thinking);
  const Completion& c = result.completion;
  // On a terminal users see the error; the exit code is for scripts.
  if (!result.ok() && exit_code_ == 0 && !console_.input_is_terminal()) {
    exit_code_ = ExitCodeOf(result);
  }
  if (!result.ok() || c.tokens.empty()) {
    conversation_ = std::move(before);
    return false;
  }
  ++totals_.turns;
  block_table_ = {totals_.turns, TokensInCache(c), c.pages};
  totals_.prompt_tokens += c.prompt_tokens;
  totals_.cached_tokens += c.cached_tokens;
  totals_.generated_tokens += static_cast<int64_t>(c.tokens.size());
  totals_.prefill_ms += c.prefill_ms;
  totals_.decode_ms += c.decode_ms;
  conversation_.AddAnswer(c, chat_, !run_.options.request.ignore_eos, *engine_->tokenizer());
  SaveSession();
  return true;
}

void Chat::SaveSession() {
  const Status saved = session_->Save(conversation_, ModelName(run_.options.engine.model_path));
  if (!saved.ok()) Fail(saved, false);
}

// A failed turn reports its error in the output format; a failed command only prints it.
void Chat::Fail(const Status& status, bool as_answer) {
  if (as_answer) {
    answerer_.Answer(status, parameters_, false);
  } else {
    console_.Error(status);
  }
  if (exit_code_ == 0 && !console_.input_is_terminal()) exit_code_ = ExitCodeOf(status.code());
}

StatusOr<int> RunChat(ProgramRun& run, const PromptInput& input) {
  KU_ASSIGN_OR_RETURN(std::unique_ptr<SessionFile> session,
                      SessionFile::Open(run.options.session_file));
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(run, input));
  // If no message was given, they are attached to the first one that is typed.
  std::vector<ContentPart> media;
  if (!input.text.has_value()) {
    KU_ASSIGN_OR_RETURN(media, ReadMedia(run, input));
  }
  KU_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, LoadEngine(run, run.options.engine));
  const TemplateOptions chat = ChatTemplateOf(run, input);
  if (run.console.is_dialogue() && !run.options.args.given("max-tokens")) {
    run.options.request.max_new_tokens = engine->config().max_context;
  }
  if (run.console.input_is_terminal()) {
    run.console.Info("Chat with " + ModelName(run.options.engine.model_path) +
                     ". /help lists the commands, /quit ends.");
  }
  return Chat(run, std::move(engine), std::move(session), std::move(conversation), chat,
              std::move(media))
      .Loop();
}

}  // namespace kuiper::demo
