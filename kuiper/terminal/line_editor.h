// Reads messages from a terminal, with editing, history search and pastes of any length. Keys come
// from RawTerminal. The chat decides what a message is.
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

  // Returns the next message and adds it to the history, unless `is_message` is false. Returns
  // nothing after Ctrl-D, after Ctrl-C twice in a row (interrupted()), and when the program is to
  // end. `continues`: the line continues earlier lines; then the first Ctrl-C drops those too
  // (dropped()), and Read returns nothing.
  std::optional<std::string> Read(const std::string& prompt, bool continues = false,
                                  bool is_message = true);
  bool interrupted() const { return num_interrupts_ > 1; }
  bool dropped() const { return dropped_; }
  // The first error while saving the history.
  const Status& history_status() const { return history_status_; }

 private:
  enum class Outcome { kContinue, kLine, kEnd };

  std::optional<Key> NextKey();
  Outcome HandleKey(const Key& key);
  Outcome HandleControlKey(char letter);
  Outcome Interrupt();
  // Returns false if the key ends the search and is to be handled as an editing key.
  bool Search(const Key& key);
  void FindOlder(size_t before);
  void Recall(bool older);
  void Clear();
  void Show();
  void MoveBelow();

  Write write_;
  InputHistory history_;
  Status history_status_;
  RawTerminal terminal_;
  KeyDecoder keys_;

  std::string prompt_;
  LineBuffer buffer_;
  size_t place_ = 0;   // index in the history of the shown line; its size: the new line
  std::string draft_;  // the new line, while an older one is shown
  bool searching_ = false;
  std::string pattern_;
  int num_interrupts_ = 0;  // number of Ctrl-C in a row
  bool continues_ = false, dropped_ = false;
  ScreenText shown_;  // what the screen shows now; no rows: nothing
};

}  // namespace kuiper
