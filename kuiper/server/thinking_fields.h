// How other interfaces say whether and how long a model shall think.
#pragma once

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Takes all such fields out of a body and leaves what they say in chat_template_kwargs and
// reasoning_budget, and the format that output_config asks for in response_format.
// `shows_reasoning` stays unless a field says that reasoning is not told. kInput, also where two
// fields contradict each other.
Status TakeThinking(JsonNode* body, bool* shows_reasoning);

}  // namespace kuiper
