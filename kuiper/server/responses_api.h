// OpenAI's Responses API, POST /v1/responses: converts its bodies to chat bodies. Features that
// need state between requests are not supported.
#pragma once

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// kInput names fields by Param; kUnavailable for features that need stored state.
StatusOr<JsonNode> ChatOfResponses(JsonNode body);

}  // namespace kuiper
