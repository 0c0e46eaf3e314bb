// Fields of other servers that Kuiper does not have. Clients and routers send many of them in every
// body although they ask for nothing. Hints never change an answer; options are allowed at the
// values that switch them off.
#pragma once

#include <string_view>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// True for null, false, 0, and an empty string, list or object.
bool IsNothing(const JsonNode& value);

// Returns OK if the field asks for nothing. kUnavailable for a listed option at a value that is not
// neutral; kInput for a hint of the wrong type. An unlisted field is kInput if its value asks for
// something, or if its name looks like a misspelling of a `known` one. Errors name the field by
// Param.
Status CheckForeignField(std::string_view name, const JsonNode& value,
                         const std::vector<std::string_view>& known);

}  // namespace kuiper
