// SIGINT, SIGTERM, SIGHUP and SIGPIPE. While an answer is generated, the first Ctrl-C ends the
// answer, and the first SIGTERM or SIGHUP ends the answer and then the program. At any other time,
// and on a second signal, the process dies by the signal, with the usual shell exit codes (129,
// 130, 143).
#pragma once

namespace kuiper {

// Call once, before anything else. Also calls EndWithLostFiles.
void InstallSignalHandlers();

// After this call, a read from a mapped file that was truncated, or whose disk failed, ends the
// process with an error (Fatal). The error names the file; without this call SIGBUS ends the
// process. Only for programs: a library leaves that to its host.
void EndWithLostFiles();

// While an object of this class exists, a signal means "stop this answer". Objects may be nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // True if a signal arrived since the newest scope began.
  static bool interrupted();
};

// True after SIGTERM or SIGHUP: the program prints the answer so far and then ends.
bool TerminationAsked();

// Sets a function to call before a signal ends the process, also for Ctrl-\ and a lost terminal. It
// must be safe in signal handlers. nullptr removes it.
void SetDeathHook(void (*hook)());

// Ends the process by the default action of the newest signal, SIGINT if there was none.
[[noreturn]] void DieBySignal();

}  // namespace kuiper
