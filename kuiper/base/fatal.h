// Ends the process when it cannot continue: after a broken contract (check.h), a device fault, or
// the loss of a mapped file. Never uses abort(), so that text already written to stdout is flushed;
// the answer so far can be printed first.
#pragma once

#include <functional>
#include <string>

namespace kuiper {

inline constexpr int kBugExitCode = 1;
inline constexpr int kDeviceExitCode = 8;
inline constexpr int kLostFileExitCode = 10;  // a mapped file changed while it was in use

// Ends the process after printing "error: MESSAGE" on stderr, or calling the LastWords object
// instead if one exists.
[[noreturn]] void Fatal(int exit_code, const std::string& message);

// While this object exists, Fatal calls `print`, which prints the answer so far and then the error.
// At most one exists at a time. `print` may be called from any thread. Data that it reads may be
// half changed only if the thread that owns them caused the fault.
class LastWords {
 public:
  using Print = std::function<void(int exit_code, const std::string& message)>;
  explicit LastWords(Print print);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  Print print_;
};

}  // namespace kuiper
