#include <cstdlib>
#include <cstring>

#include "kuiper/kernels/simt/machine.h"

namespace kuiper::simt {
namespace {

Options OptionsFromEnvironment() {
  Options o;
  if (const char* schedule = std::getenv("KUIPER_SIMT_SCHEDULE")) {
    if (std::strcmp(schedule, "reversed") == 0) o.schedule = Schedule::kReversed;
    if (std::strncmp(schedule, "shuffled", 8) == 0) {
      o.schedule = Schedule::kShuffled;
      if (schedule[8] == ':') o.seed = std::strtoull(schedule + 9, nullptr, 10);
    }
  }
  const char* eager = std::getenv("KUIPER_SIMT_EAGER");
  o.eager_streams = eager != nullptr && *eager == '1';
  return o;
}

}  // namespace

Options& CurrentOptions() {
  static Options options = OptionsFromEnvironment();
  return options;
}

}  // namespace kuiper::simt
