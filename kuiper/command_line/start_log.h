// The log of a program: glog writes the library's messages to stderr and makes no files. Console
// and the tools start it once; nobody else knows glog but the console's log file.
#pragma once

namespace kuiper {

// `min_severity`: google::GLOG_INFO and so on. `verbose`: details too, and severity, time and place
// before each line.
void StartLog(const char* program, int min_severity, bool verbose);

}  // namespace kuiper
