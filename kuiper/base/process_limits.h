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
// As ControlGroups, from the text of a /proc/PID/cgroup.
std::vector<ControlGroup> ParseControlGroups(std::string_view text, std::string_view controller);

// Returns the CPUs' worth of time that the group may use; infinity without a limit.
double CpusOf(const ControlGroup& group);
// Returns the bytes that the group leaves; the largest size_t without a limit. Pages of the file
// cache count as used there, but the kernel drops the inactive ones when memory is needed, so they
// count as free here.
size_t FreeMemoryOf(const ControlGroup& group);

// Returns the smallest amount that any group of this process leaves.
size_t FreeInControlGroups();
// Returns at least 1. SMT siblings count once: a second thread on a core adds nothing to a loop
// that saturates the core's FMA units or the memory.
int UsableCores();

}  // namespace kuiper
