// Where the messages of a chat come from: the line editor on a terminal, else lines of a file. A
// message is a line, lines joined by a trailing backslash, or what follows /multiline.
#pragma once

#include <optional>
#include <string>

#include "demo/console.h"
#include "kuiper/base/line_reader.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/terminal/line_editor.h"

namespace kuiper::demo {

class ChatInput {
 public:
  // `fd` is standard input, of which the editor is one user.
  ChatInput(Console& console, int fd);

  // The next message; nothing at the end of input.
  std::optional<std::string> ReadMessage();
  // A line that answers `question` and is no message; "" if there is none.
  std::string Ask(const std::string& question);
  // The next message is all lines up to one that is /end.
  void StartMultiline();
  // Ctrl-C, not the end of input, ended it.
  bool interrupted() const { return editor_.has_value() && editor_->interrupted(); }
  // kInput when the input ended because it cannot be read.
  const Status& status() const { return reader_.status(); }

 private:
  // The next line, or what the editor has read; nothing at the end of input, and where the editor
  // drops a message that the line continues.
  std::optional<std::string> Next(bool continues);

  Console& console_;
  LineReader reader_;
  // With the editor Ctrl-C never ends the program at once, wherever it comes.
  std::optional<InterruptScope> scope_;
  std::optional<LineEditor> editor_;
  bool noted_ = false;
  bool multiline_ = false;
};

}  // namespace kuiper::demo
