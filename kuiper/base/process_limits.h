// Limits that the system sets for this process: cores, by affinity and by quotas of control groups
// (cgroups, versions 1 and 2), and the memory that those groups leave.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kuiper {

// A control group of this process, as the folder of its files.
struct ControlGroup {
  std::string dir;
  int version = 2;
};

// Returns the group in which `controller` ("cpu", "memory") limits this process, and all its
// ancestors up to the root. In a container the names may be the host's, so the folders need not
// exist.
std::vector<ControlGroup> ControlGroups(std::string_view controller);
// Returns the groups that the text of a /proc/PID/cgroup names.
std::vector<ControlGroup> ParseControlGroups(std::string_view text, std::string_view controller);

// Returns the CPUs' worth of time that the group may use; infinity without a limit.
double CpusOf(const ControlGroup& group);
// Returns how many more bytes the group's limit allows; the largest size_t if there is no limit.
// The group's usage includes the file cache, but inactive cache pages count as free here, because
// the kernel drops them when memory is needed.
size_t FreeMemoryOf(const ControlGroup& group);

// Returns the smallest FreeMemoryOf of the groups of this process.
size_t FreeInControlGroups();
// Returns at least 1. SMT siblings count once: a second thread on a core adds nothing to a loop
// that saturates the core's FMA units or the memory.
int UsableCores();

}  // namespace kuiper
