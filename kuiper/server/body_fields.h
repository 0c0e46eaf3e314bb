// Taking fields of a known type out of a body. Errors name the field by Param.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// kUnavailable: what the field asks for is not done here.
Status NotDone(std::string_view field, const std::string& why);

// A field that is true, false, or absent; then `value` stays. kInput.
Status TakeBool(JsonNode* body, const char* key, bool* value);
// A whole number from `min` to `max`, or absent. kInput.
Status TakeInt(JsonNode* body, const char* key, int min, int max, std::optional<int>* value);

// Takes fields out that a form of requests has not: they must ask for nothing, or for one of what
// is one anyway (n, beam_width). kInput.
Status TakeUnavailable(JsonNode* body, std::initializer_list<const char*> fields);

// What is left of an object in a body when all that is known was taken out of it must ask for
// nothing. kInput.
Status CheckRest(const std::string& object, const JsonNode& rest);

}  // namespace kuiper
