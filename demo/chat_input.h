// Reads the messages of a chat, from the line editor on a terminal, else from lines of a file. A
// message is a line, lines joined by a trailing backslash, or the text after /multiline.
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
  // `fd` is standard input, which the line editor uses too.
  ChatInput(Console& console, int fd);

  // Returns the next message; nothing at the end of input.
  std::optional<std::string> ReadMessage();
  // Reads a line that answers `question` and is not a message; "" if there is none.
  std::string Ask(const std::string& question);
  // Makes all lines up to a line with /end the next message.
  void StartMultiline();
  // True if Ctrl-C ended the input, rather than the end of input.
  bool interrupted() const { return editor_.has_value() && editor_->interrupted(); }
  // Returns kInput if the input ended because it cannot be read.
  const Status& status() const { return reader_.status(); }

 private:
  // Reads a line from the line editor if there is one, else from standard input. `continues`: the
  // line belongs to a message that has begun. Returns nothing at the end of input, and after
  // Ctrl-C, whose first press in such a message only discards the message.
  std::optional<std::string> Next(bool continues);

  Console& console_;
  LineReader reader_;
  // With the editor, Ctrl-C never ends the program immediately.
  std::optional<InterruptScope> scope_;
  std::optional<LineEditor> editor_;
  bool noted_ = false;
  bool multiline_ = false;
};

}  // namespace kuiper::demo
