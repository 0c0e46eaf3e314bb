#include "demo/exit_code.h"

#include <algorithm>

namespace kuiper::demo {

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

const char* ErrorName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kModel:
      return "model_error";
    case StatusCode::kTokenizer:
      return "tokenizer_error";
    case StatusCode::kInput:
      return "invalid_input";
    case StatusCode::kContextExceeded:
      return "context_length_exceeded";
    case StatusCode::kResourceExhausted:
      return "out_of_memory";
    case StatusCode::kUnavailable:
      return "device_unavailable";
    case StatusCode::kInternal:
      return "internal_error";
  }
  return "internal_error";
}

}  // namespace kuiper::demo
