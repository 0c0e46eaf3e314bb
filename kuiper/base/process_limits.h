// What the system lets this process use: cores by affinity and by quotas of control groups
// (cgroups, versions 1 and 2), and the memory that those leave.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kuiper {

// A group that the process is in, by the folder of its files.
struct ControlGroup {
  std::string dir;
  int version = 2;
};

// The group in which `controller` ("cpu", "memory") limits this process and all groups that hold
// that, up to the root. In a container names may be the host's: folders need not exist.
std::vector<ControlGroup> ControlGroups(std::string_view controller);
// The same, of the text of a /proc/PID/cgroup.
std::vector<ControlGroup> ParseControlGroups(std::string_view text, std::string_view controller);

// CPUs' worth of time that the group may use, infinity without a limit.
double CpusOf(const ControlGroup& group);
// Bytes that the group leaves, the largest size_t without a limit. Pages of the file cache count as
// used there, but the kernel drops the inactive ones when memory is needed.
size_t FreeMemoryOf(const ControlGroup& group);

// The least that all groups of this process leave.
size_t FreeInControlGroups();
// At least 1. SMT siblings count once: a second thread on a core adds nothing to a loop that
// saturates the core's FMA units or the memory.
int UsableCores();

}  // namespace kuiper
