// How the process ends when it cannot go on: a broken contract (check.h), a fault of the device, or
// a mapped file that is no longer there.
// Never through abort(), so that text already written to stdout is flushed; what an answer has so
// far can be printed first.
#pragma once

#include <functional>
#include <string>

namespace kuiper {

inline constexpr int kBugExitCode = 1;
inline constexpr int kDeviceExitCode = 8;
inline constexpr int kLostFileExitCode = 10;  // a mapped file changed while it was in use

// Prints "error: MESSAGE" on stderr, or leaves that to the LastWords that live, and ends the
// process.
[[noreturn]] void Fatal(int exit_code, const std::string& message);

// While it lives, Fatal calls `print`, which prints what there is of the answer and then the error.
// At most one lives at a time. `print` may be called from any thread; what it reads may be half
// changed only where the thread that owns it caused the fault.
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
