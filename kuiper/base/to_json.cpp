#include "kuiper/base/to_json.h"

#include <charconv>
#include <nlohmann/json.hpp>

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

Json NumberToJson(const JsonNode& node) {
  if (const std::optional<int64_t> value = node.AsInt()) return *value;
  uint64_t value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [at, error] = std::from_chars(node.text.data(), end, value);
  if (error == std::errc() && at == end) return value;
  return *node.AsDouble();
}

}  // namespace

Json ToJson(const JsonNode& node) {
  switch (node.type) {
    case JsonNode::Type::kNull:
      return nullptr;
    case JsonNode::Type::kBool:
      return node.boolean;
    case JsonNode::Type::kInt:
    case JsonNode::Type::kFloat:
      return NumberToJson(node);
    case JsonNode::Type::kString:
      return node.text;
    case JsonNode::Type::kArray:
    case JsonNode::Type::kObject:
      break;
  }
  Json json = node.IsObject() ? Json::object() : Json::array();
  for (size_t i = 0; i < node.items.size(); ++i) {
    (node.IsObject() ? json[node.keys[i]] : json.emplace_back()) = ToJson(node.items[i]);
  }
  return json;
}

}  // namespace kuiper
