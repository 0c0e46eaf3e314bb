// Errors caused by the caller, with a hint what to do instead.
#pragma once

#include <string>
#include <utility>

#include "kuiper/base/status.h"

namespace kuiper {

inline Status InvalidArgument(std::string message, std::string hint = "") {
  return Status(StatusCode::kInvalidArgument, std::move(message), std::move(hint));
}

// For errors in the content of a file, a request body or a prompt.
inline Status InputError(std::string message, std::string hint = "") {
  return Status(StatusCode::kInput, std::move(message), std::move(hint));
}

}  // namespace kuiper
