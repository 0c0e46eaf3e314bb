// Selects the tools of a body that the model may call.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Applies and removes `tool_choice` of a chat body: afterwards `tools` holds the functions that the
// model may call, or is absent. Non-function tools, which agents offer to every server, are
// removed; their types are appended to `dropped`. kUnavailable for forced calls; kInput for
// malformed fields.
Status ChooseTools(JsonNode* body, std::vector<std::string>* dropped);

// Returns the value of the Warning header (RFC 7234, 5.5) for dropped tools of these types. Bytes
// that are invalid in a header become '?'.
std::string DroppedToolsWarning(const std::vector<std::string>& types);

}  // namespace kuiper
