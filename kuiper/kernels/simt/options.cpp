#include <cstdlib>
#include <cstring>
#include <string>

#include "kuiper/kernels/simt/machine.h"

namespace kuiper::simt {
namespace {

bool IsOn(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value == '1';
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
    if (o.num_sms < 1) Die(std::string("KUIPER_SIMT_SMS=") + sms + " is not a number of them");
  }
  if (const char* folder = std::getenv("KUIPER_SIMT_PTX")) o.ptx = folder;
  if (const char* file = std::getenv("KUIPER_SIMT_PTX_REPORT")) o.ptx_report = file;
  o.ptx_compare = IsOn("KUIPER_SIMT_PTX_COMPARE");
  return o;
}

}  // namespace

Options& CurrentOptions() {
  static Options options = OptionsFromEnvironment();
  return options;
}

}  // namespace kuiper::simt
