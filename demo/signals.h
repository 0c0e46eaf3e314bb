// SIGINT and SIGPIPE. While an answer is generated the first Ctrl-C asks for its end; at any other
// time, and the second time, the process dies by the signal as shells expect (130).
#pragma once

namespace kuiper::demo {

// Call once, before anything else.
void InstallSignalHandlers();

// Ctrl-C means "stop this answer" while one of these lives.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool interrupted() const;
};

// Ends the process by SIGINT's default action.
[[noreturn]] void DieByInterrupt();

}  // namespace kuiper::demo
