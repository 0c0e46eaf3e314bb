#include "kuiper/server/json_fields.h"

#include <algorithm>
#include <charconv>

namespace kuiper {

JsonNode TakeField(JsonNode* object, std::string_view key) {
  const auto it = std::find(object->keys.begin(), object->keys.end(), key);
  if (it == object->keys.end()) return {};
  const auto item = object->items.begin() + (it - object->keys.begin());
  JsonNode value = std::move(*item);
  object->items.erase(item);
  object->keys.erase(it);
  return value;
}

void SetField(JsonNode* object, std::string key, JsonNode value) {
  object->keys.push_back(std::move(key));
  object->items.push_back(std::move(value));
}

void RenameField(JsonNode* object, std::string_view from, const std::string& to) {
  JsonNode value = TakeField(object, from);
  if (!value.IsNull()) SetField(object, to, std::move(value));
}

StatusOr<std::vector<int32_t>> TakeIds(JsonNode* object, std::string_view key) {
  const JsonNode list = TakeField(object, key);
  if (!list.IsNull() && !list.IsArray()) {
    return Status(StatusCode::kInput, Param(key) + " is not a list");
  }
  std::vector<int32_t> ids;
  for (const JsonNode& item : list.items) {
    const std::optional<int64_t> id = item.AsInt();
    if (!id.has_value() || *id < 0 || *id > INT32_MAX) {
      return Status(StatusCode::kInput, Param(key) + " contains a value that is not a token id");
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

std::string TextOfField(const JsonNode& object, std::string_view key) {
  const JsonNode* value = object.Find(key);
  return value != nullptr && value->IsString() ? value->text : "";
}

double Decimal(float value) {
  char text[32];
  const char* end = std::to_chars(text, text + sizeof(text), value).ptr;
  double number = value;
  std::from_chars(text, end, number);
  return number;
}

JsonNode StringNode(std::string text) {
  return {.type = JsonNode::Type::kString, .text = std::move(text)};
}

JsonNode BoolNode(bool value) {
  return {.type = JsonNode::Type::kBool, .boolean = value};
}

JsonNode ListNode(std::vector<JsonNode> items) {
  return {.type = JsonNode::Type::kArray, .items = std::move(items)};
}

JsonNode ObjectNode(const std::vector<std::pair<std::string, JsonNode>>& fields) {
  JsonNode object{.type = JsonNode::Type::kObject};
  for (const auto& [key, value] : fields) SetField(&object, key, value);
  return object;
}

JsonNode TextPart(std::string text) {
  return ObjectNode({{"type", StringNode("text")}, {"text", StringNode(std::move(text))}});
}

JsonNode ImagePart(std::string url) {
  return ObjectNode({{"type", StringNode("image_url")}, {"image_url", StringNode(std::move(url))}});
}

JsonNode ContentOf(std::vector<JsonNode> parts) {
  std::string text;
  for (const JsonNode& part : parts) {
    if (part.Find("text") == nullptr) return ListNode(std::move(parts));
    text += TextOfField(part, "text");
  }
  return StringNode(std::move(text));
}

}  // namespace kuiper
