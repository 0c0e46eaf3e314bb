// Measures elapsed time.
#pragma once

#include <chrono>

namespace kuiper {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline double MillisecondsSince(Clock::time_point begin) {
  return 1e3 * SecondsSince(begin);
}

}  // namespace kuiper
