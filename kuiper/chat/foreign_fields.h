// Fields that other servers' bodies have and Kuiper's have not. Clients and routers write many of
// them into every body although they ask for nothing: hints, which change no answer whatever they
// hold, and options at the value that switches them off.
#pragma once

#include <string_view>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Null, false, 0, or an empty string, list or object.
bool IsNothing(const JsonNode& value);

// OK for a field that asks for nothing. kUnavailable for a listed option at another value than its
// neutral ones. kInput for a hint of the wrong type, and for a name that is not listed: unless its
// value is nothing and no name of `known` is so near that it was probably meant. Errors name the
// field by Param.
Status CheckForeignField(std::string_view name, const JsonNode& value,
                         const std::vector<std::string_view>& known);

}  // namespace kuiper
