#include "kuiper/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kuiper {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: internal error at %s:%d: %s%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

}  // namespace kuiper
