// Formats numbers for users: sizes, speeds, progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace kuiper {

constexpr double kMegabyte = 1 << 20;

// "1.50 GB", "512 MB", "12 KB".
std::string HumanBytes(size_t count);

// Returns "######..................", 24 characters; total must be above 0.
std::string ProgressBar(int64_t done, int64_t total);
// ", 1:05 left"
std::string TimeLeftText(double seconds);

// Returns 0 if milliseconds is 0.
double PerSecond(double count, double milliseconds);

// snprintf for lines of up to 500 bytes.
template <typename... Args>
std::string Format(const char* format, Args... args) {
  char text[512];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

}  // namespace kuiper
