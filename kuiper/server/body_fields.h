// Takes fields of a known type out of a body. Errors name the field by Param.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Returns kUnavailable: the field asks for an unsupported feature.
Status UnsupportedField(std::string_view field, const std::string& why);

// Takes a bool; if the field is absent, `value` is unchanged. kInput.
Status TakeBool(JsonNode* body, const char* key, bool* value);
// Takes a whole number from `min` to `max`; if the field is absent, `value` is unchanged. kInput.
Status TakeInt(JsonNode* body, const char* key, int min, int max, std::optional<int>* value);

// Takes fields that the API format does not have. They must ask for nothing; n and beam_width may
// also be 1. kInput.
Status TakeUnavailable(JsonNode* body, std::initializer_list<const char*> fields);

// Checks that the remaining, unknown fields of a body's object ask for nothing. kInput.
Status CheckRest(const std::string& object, const JsonNode& rest);

}  // namespace kuiper
