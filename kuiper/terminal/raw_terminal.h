// The terminal of a chat that reads its keys itself: no lines, no echo, bracketed paste. What it
// was is restored at the end, also when a signal ends the process.
#pragma once

#include <optional>
#include <string>

namespace kuiper {

class RawTerminal {
 public:
  // Whether standard input can be one: not where TERM says "dumb".
  static bool IsPossible();

  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // Ctrl-C and its like are keys, or else signals.
  void TakeSignalKeys(bool as_keys);
  // As at the beginning until the process goes on after Ctrl-Z.
  void Suspend();

  // What was typed, "" after `timeout_ms` (-1: never) and when the window changed its size; nothing
  // at the end of input and when the program shall end.
  std::optional<std::string> Read(int timeout_ms);
};

// The size of the terminal, or the usual one if it does not say.
int TerminalColumns(int fd);
int TerminalRows(int fd);

// Gives the terminal back what a RawTerminal changed, if there is one. Safe in signal handlers.
void RestoreTerminal();

}  // namespace kuiper
