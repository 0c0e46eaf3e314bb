// Statuses of what callers did, with what they should do instead.
#pragma once

#include <string>
#include <utility>

#include "kuiper/base/status.h"

namespace kuiper {

inline Status InvalidArgument(std::string message, std::string hint = "") {
  return Status(StatusCode::kInvalidArgument, std::move(message), std::move(hint));
}

// Of what a file, a body or a prompt holds.
inline Status InputError(std::string message, std::string hint = "") {
  return Status(StatusCode::kInput, std::move(message), std::move(hint));
}

}  // namespace kuiper
