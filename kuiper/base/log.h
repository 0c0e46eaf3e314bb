// One-line log messages of the library. They go to glog, which the program configures (level,
// file); nothing is logged per step.
#pragma once

#include <string>

namespace kuiper {

void LogInfo(const std::string& message);
void LogWarning(const std::string& message);

}  // namespace kuiper
