// One-line messages of the library: what was chosen at load, and warnings; nothing is logged per
// step. They go to the sink that the host program sets, and nowhere while there is none.
#pragma once

#include <string>

namespace kuiper {

// kDetail: for those who ask for more.
enum class LogSeverity { kDetail, kInfo, kWarning };
using LogSink = void (*)(LogSeverity severity, const std::string& message);

// The sink of the whole process; nullptr for silence. It is called from any thread.
void SetLogSink(LogSink sink);

void LogDetail(const std::string& message);
void LogInfo(const std::string& message);
void LogWarning(const std::string& message);

}  // namespace kuiper
