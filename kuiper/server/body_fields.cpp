#include "kuiper/server/body_fields.h"

#include "kuiper/base/errors.h"
#include "kuiper/chat/foreign_fields.h"
#include "kuiper/server/json_fields.h"

namespace kuiper {

Status UnsupportedField(std::string_view field, const std::string& why) {
  return Status(StatusCode::kUnavailable, Param(field) + " is not supported: " + why);
}

Status TakeBool(JsonNode* body, const char* key, bool* value) {
  const JsonNode node = TakeField(body, key);
  if (node.IsNull()) return OkStatus();
  if (!node.IsBool()) return InputError(Param(key) + " is not true or false");
  *value = node.boolean;
  return OkStatus();
}

Status TakeInt(JsonNode* body, const char* key, int min, int max, std::optional<int>* value) {
  const JsonNode node = TakeField(body, key);
  if (node.IsNull()) return OkStatus();
  const std::optional<int64_t> number = node.AsInt();
  if (!number.has_value() || *number < min || *number > max) {
    return InputError(Param(key) + " is not a whole number from " + std::to_string(min) + " to " +
                      std::to_string(max));
  }
  *value = static_cast<int>(*number);
  return OkStatus();
}

Status TakeUnavailable(JsonNode* body, std::initializer_list<const char*> fields) {
  for (const char* field : fields) {
    const JsonNode value = TakeField(body, field);
    const bool is_count = field == std::string_view("n") || field == std::string_view("beam_width");
    if (IsNothing(value) || (is_count && value.AsDouble() == 1)) continue;
    return InputError(Param(field) + " is not available");
  }
  return OkStatus();
}

Status CheckRest(const std::string& object, const JsonNode& rest) {
  for (size_t i = 0; i < rest.keys.size(); ++i) {
    if (IsNothing(rest.items[i])) continue;
    return InputError(Param(object + "." + rest.keys[i]) + " is not available");
  }
  return OkStatus();
}

}  // namespace kuiper
