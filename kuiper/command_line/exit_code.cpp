#include "kuiper/command_line/exit_code.h"

#include <algorithm>

namespace kuiper {

int ExitCodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return kExitOk;
    case StatusCode::kInvalidArgument:
      return kExitUsage;
    case StatusCode::kModel:
      return kExitModel;
    case StatusCode::kTokenizer:
      return kExitTokenizer;
    case StatusCode::kInput:
      return kExitInput;
    case StatusCode::kContextExceeded:
      return kExitContext;
    case StatusCode::kResourceExhausted:
      return kExitMemory;
    case StatusCode::kUnavailable:
      return kExitDevice;
    case StatusCode::kInternal:
      return kExitInternal;
  }
  return kExitInternal;
}

std::string FlagName(std::string_view parameter) {
  std::string name = "--" + std::string(parameter);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace kuiper
