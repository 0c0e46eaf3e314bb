#include "kuiper/base/check.h"

#include "kuiper/base/fatal.h"

namespace kuiper {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  Fatal(kBugExitCode, std::string("internal error at ") + file + ":" + std::to_string(line) + ": " +
                          condition + (message.empty() ? "" : ": ") + message);
}

}  // namespace kuiper
