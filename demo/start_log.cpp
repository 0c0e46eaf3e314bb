#include "demo/start_log.h"

#include <glog/logging.h>

#include "kuiper/base/log.h"

namespace kuiper::demo {

void StartLog(const char* program, int min_severity, bool prefix) {
  FLAGS_logtostderr = true;
  FLAGS_colorlogtostderr = false;
  FLAGS_minloglevel = min_severity;
  FLAGS_log_prefix = prefix;
  google::InitGoogleLogging(program);
  SetLogSink([](LogSeverity severity, const std::string& message) {
    if (severity == LogSeverity::kWarning) {
      LOG(WARNING) << "warning: " << message;
    } else {
      LOG(INFO) << message;
    }
  });
}

}  // namespace kuiper::demo
