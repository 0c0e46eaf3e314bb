// Reads messages from a terminal: editing, history, search in it, pastes of any length. Keys come
// from RawTerminal; what a message is, is the chat's business.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kuiper/terminal/input_history.h"
#include "kuiper/terminal/key_decoder.h"
#include "kuiper/terminal/line_buffer.h"
#include "kuiper/terminal/raw_terminal.h"

namespace kuiper {

class LineEditor {
 public:
  using Write = std::function<void(std::string_view)>;  // to the terminal

  LineEditor(Write write, InputHistory history);

  // The next message, which the history has then; nothing after Ctrl-D, after Ctrl-C twice in a row
  // (interrupted()), and when the program shall end. `continues`: it goes on with what was read
  // before, which the first Ctrl-C drops, too (dropped()): nothing then. `is_message` false: the
  // history does not get it.
  std::optional<std::string> Read(const std::string& prompt, bool continues = false,
                                  bool is_message = true);
  bool interrupted() const { return num_interrupts_ > 1; }
  bool dropped() const { return dropped_; }
  // Why the history could not be kept.
  const Status& history_status() const { return history_status_; }

 private:
  enum class Outcome { kGoesOn, kLine, kEnd };

  std::optional<Key> NextKey();
  Outcome Obey(const Key& key);
  Outcome ObeyControl(char letter);
  Outcome Interrupt();
  // False: the key ends the search, and is one of editing.
  bool Search(const Key& key);
  void FindOlder(size_t before);
  void Recall(bool older);
  void Clear();
  void Show();
  void MoveBehind();

  Write write_;
  InputHistory history_;
  Status history_status_;
  RawTerminal terminal_;
  KeyDecoder keys_;

  std::string prompt_;
  LineBuffer buffer_;
  size_t place_ = 0;   // of the shown line in the history; behind its end: what is new
  std::string draft_;  // what is new, while an older line is shown
  bool searching_ = false;
  std::string pattern_;
  int num_interrupts_ = 0;  // Ctrl-C in a row
  bool continues_ = false, dropped_ = false;
  ScreenText shown_;  // on the screen now; no rows: nothing
};

}  // namespace kuiper
