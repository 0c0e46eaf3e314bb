#include "kuiper/report/number_text.h"

namespace kuiper {

double PerSecond(double count, double milliseconds) {
  return milliseconds > 0 ? count * 1000 / milliseconds : 0;
}

std::string HumanBytes(size_t count) {
  const double bytes = static_cast<double>(count);
  if (bytes >= 1024 * kMegabyte) return Format("%.2f GB", bytes / (1024 * kMegabyte));
  if (bytes >= kMegabyte) return Format("%.0f MB", bytes / kMegabyte);
  return Format("%.0f KB", bytes / 1024);
}

std::string ProgressBar(int64_t done, int64_t total) {
  constexpr int64_t kWidth = 24;
  std::string bar(static_cast<size_t>(kWidth * done / total), '#');
  bar.append(kWidth - bar.size(), '.');
  return bar;
}

std::string TimeLeftText(double seconds) {
  const long whole = static_cast<long>(seconds);
  return whole < 3600 ? Format(", %ld:%02ld left", whole / 60, whole % 60)
                      : Format(", %ld:%02ld:%02ld left", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace kuiper
