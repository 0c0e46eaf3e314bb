#include "kuiper/base/process_limits.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

#include "kuiper/base/text.h"

namespace kuiper {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<size_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

// CPUs of the affinity mask, SMT siblings counted once.
int AffineCores() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &set)) continue;
      const std::string name = "cpu" + std::to_string(cpu);
      const std::string siblings =
          FirstLine("/sys/devices/system/cpu/" + name + "/topology/thread_siblings_list");
      cores.insert(siblings.empty() ? name : siblings);
    }
    return static_cast<int>(cores.size());
  }
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

// Parses "quota period" (cgroup v2 cpu.max); infinity if unlimited.
double ParseQuota(const std::string& quota, const std::string& period) {
  char* end = nullptr;
  const double q = std::strtod(quota.c_str(), &end);
  if (end == quota.c_str() || q <= 0) return HUGE_VAL;  // "max", -1 or no such file
  const double p = std::strtod(period.c_str(), nullptr);
  return p > 0 ? q / p : HUGE_VAL;
}

// An empty list matches: version 2 names no controllers in its line.
bool HasController(std::string_view list, std::string_view controller) {
  if (list.empty()) return true;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    if (name == controller) return true;
    list.remove_prefix(std::min(list.size(), name.size() + 1));
  }
  return false;
}

}  // namespace

std::vector<ControlGroup> ParseControlGroups(std::string_view text, std::string_view controller) {
  std::vector<ControlGroup> groups;
  while (!text.empty()) {  // "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1)
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (!HasController(controllers, controller)) continue;
    const int version = controllers.empty() ? 2 : 1;
    std::string root = "/sys/fs/cgroup";
    if (version == 1) root.append("/").append(controller);
    std::string path(line.substr(second + 1));
    for (;;) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      groups.push_back({root + path, version});
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return groups;
}

std::vector<ControlGroup> ControlGroups(std::string_view controller) {
  std::ifstream file("/proc/self/cgroup");
  return ParseControlGroups(std::string(std::istreambuf_iterator<char>(file), {}), controller);
}

double CpusOf(const ControlGroup& group) {
  if (group.version == 1) {
    return ParseQuota(FirstLine(group.dir + "/cpu.cfs_quota_us"),
                      FirstLine(group.dir + "/cpu.cfs_period_us"));
  }
  const std::string max = FirstLine(group.dir + "/cpu.max");
  const size_t space = max.find(' ');
  return space == std::string::npos ? HUGE_VAL
                                    : ParseQuota(max.substr(0, space), max.substr(space + 1));
}

size_t FreeMemoryOf(const ControlGroup& group) {
  const bool old = group.version == 1;
  const std::string dir = group.dir + "/";
  const std::optional<size_t> max =
      ReadNumber(dir + (old ? "memory.limit_in_bytes" : "memory.max"));
  const std::optional<size_t> used =
      ReadNumber(dir + (old ? "memory.usage_in_bytes" : "memory.current"));
  if (!max || !used) return std::numeric_limits<size_t>::max();
  // In version 1 the keys without "total_" exclude child groups.
  const char* key = old ? "total_inactive_file" : "inactive_file";
  const size_t cache = std::min(ReadKey(dir + "memory.stat", key).value_or(0), *used);
  const size_t held = *used - cache;
  return *max > held ? *max - held : 0;
}

size_t FreeInControlGroups() {
  size_t free = std::numeric_limits<size_t>::max();
  for (const ControlGroup& group : ControlGroups("memory")) {
    free = std::min(free, FreeMemoryOf(group));
  }
  return free;
}

int UsableCores() {
  double cpus = AffineCores();
  for (const ControlGroup& group : ControlGroups("cpu")) {
    cpus = std::min(cpus, std::ceil(CpusOf(group)));
  }
  return std::max(1, static_cast<int>(cpus));
}

}  // namespace kuiper
