// The bodies of OpenAI's newer form, POST /v1/responses, without anything that is kept between
// requests: they become bodies of chats.
#pragma once

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// kInput names fields by Param; kUnavailable for what needs a store.
StatusOr<JsonNode> ChatOfResponses(JsonNode body);

}  // namespace kuiper
