#include "kuiper/base/log.h"

#include <atomic>

namespace kuiper {
namespace {

std::atomic<LogSink> log_sink = nullptr;

void Log(LogSeverity severity, const std::string& message) {
  if (const LogSink sink = log_sink) sink(severity, message);
}

}  // namespace

void SetLogSink(LogSink sink) {
  log_sink = sink;
}
void LogDetail(const std::string& message) {
  Log(LogSeverity::kDetail, message);
}
void LogInfo(const std::string& message) {
  Log(LogSeverity::kInfo, message);
}
void LogWarning(const std::string& message) {
  Log(LogSeverity::kWarning, message);
}

}  // namespace kuiper
