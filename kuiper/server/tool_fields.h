// The tools of a body, and which of them the model may call.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Applies `tool_choice` to `tools` of a chat's body: afterwards the body has no tool_choice, and
// `tools` holds the functions that the model may call, or is absent. The types of tools that are no
// functions are appended to `dropped`: agents offer them to every server. kUnavailable for calls
// that are forced, kInput for what is malformed.
Status ChooseTools(JsonNode* body, std::vector<std::string>* dropped);

// The value of the header Warning (RFC 7234, 5.5) that names tools of these types, which were
// dropped. Bytes that a header cannot have become '?'.
std::string DroppedToolsWarning(const std::vector<std::string>& types);

}  // namespace kuiper
