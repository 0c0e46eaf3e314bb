#include "kuiper/base/log.h"

#include <glog/logging.h>

namespace kuiper {

void LogInfo(const std::string& message) {
  LOG(INFO) << message;
}
void LogWarning(const std::string& message) {
  LOG(WARNING) << message;
}

}  // namespace kuiper
