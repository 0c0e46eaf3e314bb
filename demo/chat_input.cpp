#include "demo/chat_input.h"

#include <utility>

namespace kuiper::demo {
namespace {

constexpr char kEndOfMultiline[] = "/end";

}  // namespace

ChatInput::ChatInput(Console& console, int fd) : console_(console), reader_(fd) {
  if (!console.is_dialogue() || !RawTerminal::IsPossible()) return;
  scope_.emplace();
  editor_.emplace([&console](std::string_view text) { console.Answer(text); },
                  InputHistory(HistoryPath()));
}

std::optional<std::string> ChatInput::ReadMessage() {
  std::string message;
  bool more = false;
  while (true) {
    const std::optional<std::string> line = Next(more || multiline_);
    if (!line.has_value()) {
      multiline_ = more = false;
      const std::string read = std::exchange(message, "");
      if (editor_.has_value() && editor_->dropped()) continue;
      return read.empty() ? std::nullopt : std::optional(read);
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

std::string ChatInput::Ask(const std::string& question) {
  if (editor_.has_value()) return editor_->Read(question, true, false).value_or("");
  console_.Prompt(question.c_str());
  return reader_.Next().value_or("");
}

void ChatInput::StartMultiline() {
  multiline_ = true;
  if (editor_.has_value()) console_.Reply("a line /end sends the message, Ctrl-C drops it");
}

std::optional<std::string> ChatInput::Next(bool continues) {
  const char* const prompt = continues ? "... " : ">>> ";
  if (!editor_.has_value()) {
    console_.Prompt(prompt);
    std::optional<std::string> line = reader_.Next();
    if (!line.has_value()) console_.Prompt("\n");
    return line;
  }
  std::optional<std::string> message = editor_->Read(prompt, continues);
  if (!editor_->history_status().ok() && !noted_) {
    noted_ = true;
    console_.Note(editor_->history_status().message() + ": the history ends with this chat");
  }
  return message;
}

}  // namespace kuiper::demo
