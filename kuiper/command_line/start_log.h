// The log of a program: glog writes the library's messages to stderr and creates no files. Console
// and the tools start it once. Only the console's log file uses glog too.
#pragma once

namespace kuiper {

// `min_severity`: google::GLOG_INFO and so on. `verbose`: also logs details, and starts each line
// with severity, time and source position.
void StartLog(const char* program, int min_severity, bool verbose);

}  // namespace kuiper
