#include "kuiper/command_line/start_log.h"

#include <glog/logging.h>

#include <mutex>
#include <set>
#include <string>

#include "kuiper/base/log.h"

namespace kuiper {
namespace {

// True for the first message with this text: a program that loads a model twice logs its warnings
// and details once.
bool IsFirstTime(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::scoped_lock lock(mutex);
  return said.insert(message).second;
}

}  // namespace

void StartLog(const char* program, int min_severity, bool verbose) {
  FLAGS_logtostderr = true;
  FLAGS_colorlogtostderr = false;
  FLAGS_minloglevel = min_severity;
  FLAGS_log_prefix = verbose;
  FLAGS_v = verbose ? 1 : 0;
  google::InitGoogleLogging(program);
  SetLogSink([](LogSeverity severity, const std::string& message) {
    if (severity == LogSeverity::kWarning) {
      if (IsFirstTime(message)) LOG(WARNING) << "warning: " << message;
    } else if (severity == LogSeverity::kDetail) {
      if (IsFirstTime(message)) VLOG(1) << message;
    } else {
      LOG(INFO) << message;
    }
  });
}

}  // namespace kuiper
