// One-line messages of the library: choices made at load, and warnings; nothing is logged per step.
// They go to the sink set by the host program, and are dropped if it set none.
#pragma once

#include <string>

namespace kuiper {

// kDetail is shown only if details are requested.
enum class LogSeverity { kDetail, kInfo, kWarning };
using LogSink = void (*)(LogSeverity severity, const std::string& message);

// Sets the sink of the whole process; nullptr for silence. The sink is called from any thread.
void SetLogSink(LogSink sink);

void LogDetail(const std::string& message);
void LogInfo(const std::string& message);
void LogWarning(const std::string& message);

}  // namespace kuiper
