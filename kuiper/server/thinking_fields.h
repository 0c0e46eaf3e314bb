// The fields of other APIs that control whether and how long a model thinks.
#pragma once

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Replaces all such fields of a body by chat_template_kwargs and reasoning_budget. Moves the format
// of output_config to response_format. Sets `shows_reasoning` to false if a field hides reasoning.
// kInput, also if two fields contradict each other.
Status TakeThinking(JsonNode* body, bool* shows_reasoning);

}  // namespace kuiper
