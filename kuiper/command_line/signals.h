// SIGINT, SIGTERM, SIGHUP and SIGPIPE. While an answer is generated the first Ctrl-C asks for its
// end, and the first SIGTERM or SIGHUP for its end and then the program's; at any other time, and
// the second time, the process dies by the signal as shells expect (129, 130, 143).
#pragma once

namespace kuiper {

// Call once, before anything else. Calls EndWithLostFiles.
void InstallSignalHandlers();

// From here on the process ends with an error (Fatal) that names the file, and not by SIGBUS, when
// it reads a page of a mapped file that was truncated or whose disk failed. For programs: a library
// leaves that to its host.
void EndWithLostFiles();

// A signal means "stop this answer" while one of these lives; they may be nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Since the newest one began.
  static bool interrupted();
};

// SIGTERM or SIGHUP came: what there is gets printed, and then the program ends.
bool TerminationAsked();

// Called before a signal ends the process, by Ctrl-\ and a lost terminal too; must be safe in
// handlers. nullptr: none.
void SetDeathHook(void (*hook)());

// Ends the process by the default action of the newest signal, SIGINT if there was none.
[[noreturn]] void DieBySignal();

}  // namespace kuiper
