#include "demo/chat_input.h"

namespace kuiper::demo {

ChatInput::ChatInput(Console& console, int fd) : console_(console), reader_(fd) {
  if (!console.is_dialogue() || !RawTerminal::IsPossible()) return;
  scope_.emplace();
  editor_.emplace([&console](std::string_view text) { console.Answer(text); },
                  InputHistory(HistoryPath()));
}

std::optional<std::string> ChatInput::Next(const char* prompt) {
  if (!editor_.has_value()) {
    console_.Prompt(prompt);
    std::optional<std::string> line = reader_.Next();
    if (!line.has_value()) console_.Prompt("\n");
    return line;
  }
  std::optional<std::string> message = editor_->Read(prompt);
  if (!editor_->history_status().ok() && !noted_) {
    noted_ = true;
    console_.Note(editor_->history_status().message() + ": the history ends with this chat");
  }
  return message;
}

}  // namespace kuiper::demo
