// Checks of contracts between our own functions; always on, also in release builds. A failed check
// is a bug in this program, never a reaction to bad input. It prints file:line and ends the process
// with exit code 1 (see fatal.h).
#pragma once

#include <string>

namespace kuiper {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

}  // namespace kuiper

// KU_CHECK(condition) or KU_CHECK(condition, std::string message).
#define KU_CHECK(condition, ...)                                                         \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      ::kuiper::CheckFailed(__FILE__, __LINE__, #condition, ::std::string(__VA_ARGS__)); \
    }                                                                                    \
  } while (false)
