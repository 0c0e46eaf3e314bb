// One-line messages of the library: what was chosen at load, and warnings; nothing is logged per
// step. They go to the sink that the host program sets, and nowhere while there is none.
#pragma once

#include <string>

namespace kuiper {

enum class LogSeverity { kInfo, kWarning };
using LogSink = void (*)(LogSeverity severity, const std::string& message);

// The sink of the whole process; nullptr for silence. It is called from any thread.
void SetLogSink(LogSink sink);

void LogInfo(const std::string& message);
void LogWarning(const std::string& message);

}  // namespace kuiper
