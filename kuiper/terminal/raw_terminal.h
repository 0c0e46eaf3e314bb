// The terminal of a chat that reads keys itself: no line mode, no echo, bracketed paste. The old
// settings are restored at the end, also when a signal ends the process.
#pragma once

#include <optional>
#include <string>

namespace kuiper {

class RawTerminal {
 public:
  // True if standard input can be a raw terminal; false if TERM is "dumb".
  static bool IsPossible();

  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // `as_keys`: Ctrl-C and similar keys are read as keys; otherwise they send signals.
  void TakeSignalKeys(bool as_keys);
  // Restores the old settings and stops the process, as Ctrl-Z does, until it is continued.
  void Suspend();

  // Returns the typed bytes; "" after `timeout_ms` (-1: no limit) and when the window size changed;
  // nothing at the end of input and when the program is to end.
  std::optional<std::string> Read(int timeout_ms);
};

// Return the size of the terminal, or 80 x 24 if it is unknown.
int TerminalColumns(int fd);
int TerminalRows(int fd);

// Restores what a RawTerminal changed, if there is one. Safe in signal handlers.
void RestoreTerminal();

}  // namespace kuiper
