#include "kuiper/chat/message_values.h"

#include <algorithm>
#include <utility>

namespace kuiper {
namespace {

using jinja::Origin;
using jinja::Value;

// A string that holds a JSON object becomes that object.
void ParseArguments(JsonNode* call) {
  JsonNode* function = FieldOf(call, "function");
  JsonNode* arguments = FieldOf(function == nullptr ? call : function, "arguments");
  if (arguments == nullptr || !arguments->IsString()) return;
  StatusOr<JsonNode> parsed = ParseJson(arguments->text, StatusCode::kInput, "arguments");
  if (parsed.ok() && parsed->IsObject()) *arguments = std::move(*parsed);
}

// Converts an assistant's message to the forms that the template takes.
JsonNode UsualForm(JsonNode message, const TemplateFacts& facts) {
  JsonNode* content = FieldOf(&message, "content");
  if (content == nullptr && !facts.takes_no_content) {
    message.keys.emplace_back("content");
    message.items.push_back({.type = JsonNode::Type::kString});
  } else if (content != nullptr && content->IsNull() && !facts.takes_null_content) {
    *content = {.type = JsonNode::Type::kString};
  }
  JsonNode* calls = FieldOf(&message, "tool_calls");
  if (calls != nullptr && !facts.takes_text_arguments) {
    for (JsonNode& call : calls->items) ParseArguments(&call);
  }
  return message;
}

}  // namespace

JsonNode* FieldOf(JsonNode* object, std::string_view key) {
  const auto found = std::find(object->keys.begin(), object->keys.end(), key);
  return found == object->keys.end() ? nullptr : &object->items[found - object->keys.begin()];
}

Value MessageValues::Of(const Message& message, size_t i) {
  const bool is_assistant = message.role == Role::kAssistant;
  jinja::Dict* dict = heap_.NewDict();
  // A role is a known word, not text of a user.
  Set(dict, "role", Value::String(heap_.Refer(RoleName(message.role), jinja::kTemplate)));
  const Origin origin = is_assistant ? ContentOrigin(i) : jinja::kData;
  if (message.source.IsObject()) {
    const bool is_usual = !is_assistant || (facts_.takes_null_content && facts_.takes_no_content &&
                                            facts_.takes_text_arguments);
    if (!is_usual) changed_.push_back(UsualForm(message.source, facts_));
    AddSource(message, is_usual ? message.source : changed_.back(), origin, dict, i);
    return Value::OfDict(dict);
  }
  Set(dict, "content", Content(message, origin));
  if (message.reasoning.has_value()) {
    Set(dict, "reasoning_content",
        Value::String(heap_.Refer(*message.reasoning, ReasoningOrigin(i))));
  }
  if (!message.tool_calls.empty()) Set(dict, "tool_calls", Calls(message.tool_calls));
  return Value::OfDict(dict);
}

void MessageValues::Set(jinja::Dict* dict, std::string_view key, const Value& value) {
  heap_.Set(dict, Value::String(heap_.Refer(key, jinja::kData)), value);
}

Value MessageValues::Calls(const std::vector<ToolCall>& calls) {
  using Type = JsonNode::Type;
  JsonNode list = {.type = Type::kArray};
  for (const ToolCall& call : calls) {
    JsonNode arguments = {.type = Type::kString, .text = call.arguments_json};
    if (!call.arguments_are_text) {
      StatusOr<JsonNode> parsed = ParseJson(call.arguments_json, StatusCode::kInput, "arguments");
      if (parsed.ok()) arguments = std::move(*parsed);
    }
    JsonNode function = {.type = Type::kObject};
    function.keys = {"name", "arguments"};
    function.items = {{.type = Type::kString, .text = call.name}, std::move(arguments)};
    JsonNode& json = list.items.emplace_back();
    json.type = Type::kObject;
    json.keys = {"type", "function"};
    json.items = {{.type = Type::kString, .text = "function"}, std::move(function)};
    if (!facts_.takes_text_arguments) ParseArguments(&json);
  }
  changed_.push_back(std::move(list));
  return heap_.FromJson(changed_.back(), jinja::kData);
}

Value MessageValues::Content(const Message& message, Origin origin) {
  if (message.parts.empty()) return Value::String(heap_.Refer(message.text, origin));
  if (!facts_.takes_parts && !HasMedia(message)) return heap_.Str(TextOf(message), origin);
  if (message.source.IsObject()) return heap_.FromJson(*message.source.Find("content"), origin);
  jinja::List* parts = heap_.NewList();
  for (const ContentPart& part : message.parts) {
    constexpr std::string_view kKinds[] = {"text", "image", "video"};
    const std::string_view kind = kKinds[static_cast<size_t>(part.kind)];
    jinja::Dict* dict = heap_.NewDict();
    Set(dict, "type", Value::String(heap_.Refer(kind, jinja::kData)));
    Set(dict, kind, Value::String(heap_.Refer(part.text, origin)));
    heap_.Push(parts, Value::OfDict(dict));
  }
  return Value::OfList(parts);
}

void MessageValues::AddSource(const Message& message, const JsonNode& source, Origin origin,
                              jinja::Dict* dict, size_t i) {
  for (size_t k = 0; k < source.keys.size(); ++k) {
    const std::string& key = source.keys[k];
    const JsonNode& value = source.items[k];
    if (key == "role") continue;
    if (key == "content" && !value.IsNull()) {
      Set(dict, key, Content(message, origin));
    } else {
      const bool reasoning = key == "reasoning_content" && message.role == Role::kAssistant;
      Set(dict, key, heap_.FromJson(value, reasoning ? ReasoningOrigin(i) : jinja::kData));
    }
  }
}

}  // namespace kuiper
