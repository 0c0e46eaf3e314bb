#include <cstdlib>
#include <cstring>
#include <string>

#include "emulator/machine.h"

namespace kuiper::simt {
namespace {

bool IsOn(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value == '1';
}

// Returns 0 for an unknown architecture.
size_t SharedBytesOf(int arch) {
  constexpr size_t kKilobyte = 1024;
  switch (arch) {
    case 80:
    case 87:
      return 163 * kKilobyte;
    case 86:
    case 89:
      return 99 * kKilobyte;
    case 90:
      return kMostSharedBytes;
    default:
      return 0;
  }
}

Options OptionsFromEnvironment() {
  Options o;
  if (const char* schedule = std::getenv("KUIPER_SIMT_SCHEDULE")) {
    if (std::strcmp(schedule, "reversed") == 0) o.schedule = Schedule::kReversed;
    if (std::strncmp(schedule, "shuffled", 8) == 0) {
      o.schedule = Schedule::kShuffled;
      if (schedule[8] == ':') o.seed = std::strtoull(schedule + 9, nullptr, 10);
    }
  }
  o.eager_streams = IsOn("KUIPER_SIMT_EAGER");
  if (const char* sms = std::getenv("KUIPER_SIMT_SMS")) {
    o.num_sms = std::atoi(sms);
    if (o.num_sms < 1)
      Die(std::string("KUIPER_SIMT_SMS=") + sms + " is not a number of multiprocessors");
  }
  if (const char* arch = std::getenv("KUIPER_SIMT_ARCH")) {
    o.arch = std::atoi(arch);
    if (SharedBytesOf(o.arch) == 0) Die(std::string("KUIPER_SIMT_ARCH=") + arch + " is not known");
  }
  if (const char* folder = std::getenv("KUIPER_SIMT_PTX")) o.ptx = folder;
  if (const char* file = std::getenv("KUIPER_SIMT_PTX_REPORT")) o.ptx_report = file;
  o.ptx_traffic = !o.ptx_report.empty();
  o.ptx_compare = IsOn("KUIPER_SIMT_PTX_COMPARE");
  return o;
}

}  // namespace

size_t MaxSharedBytes() {
  return SharedBytesOf(CurrentOptions().arch);
}

Options& CurrentOptions() {
  static Options options = OptionsFromEnvironment();
  return options;
}

}  // namespace kuiper::simt
