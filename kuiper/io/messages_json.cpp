#include "kuiper/io/messages_json.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"

namespace kuiper {
namespace {

constexpr char kName[] = "messages";

// Returns a field that is a string; nullptr if it is absent or null.
StatusOr<const std::string*> OptionalString(const JsonNode& node, const char* key,
                                            const std::string& where) {
  const JsonNode* value = node.Find(key);
  if (value == nullptr || value->IsNull()) return static_cast<const std::string*>(nullptr);
  if (!value->IsString()) return InputError(where + ": \"" + key + "\" is not a string");
  return &value->text;
}

StatusOr<Role> ParseRole(const JsonNode& node, const std::string& where) {
  KU_ASSIGN_OR_RETURN(const std::string* name, OptionalString(node, "role", where));
  if (name == nullptr) return InputError(where + " has no role");
  for (Role role : {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool}) {
    if (*name == RoleName(role)) return role;
  }
  return InputError(where + ": role \"" + *name + "\" is not one of system, user, assistant, tool");
}

// Reads where an image or video is: the value under its type, a string or {"url": ...}. "digest",
// and "fps" for videos, are siblings of that value.
Status ParseMedia(const JsonNode& node, const std::string& type, const std::string& where,
                  ContentPart* part) {
  const bool is_video = type.starts_with("video");
  part->kind = is_video ? ContentPart::Kind::kVideo : ContentPart::Kind::kImage;
  const JsonNode* holder = &node;
  const char* key = type.c_str();
  if (const JsonNode* nested = node.Find(key); nested != nullptr && nested->IsObject()) {
    holder = nested;
    key = "url";
  }
  KU_ASSIGN_OR_RETURN(const std::string* location, OptionalString(*holder, key, where));
  if (location != nullptr) part->text = *location;
  KU_ASSIGN_OR_RETURN(const std::string* digest, OptionalString(node, "digest", where));
  if (digest != nullptr) part->digest = *digest;
  const JsonNode* fps = node.Find("fps");
  if (!is_video || fps == nullptr || fps->IsNull()) return OkStatus();
  part->fps = fps->AsDouble();
  if (part->fps.value_or(0) > 0) return OkStatus();
  return InputError(where + ": fps is not a number above 0");
}

// Reads {"type": "text", "text": ...}, {"type": "image", "image": path}, {"type": "image_url",
// "image_url": url or {"url": url}}, and the same for videos.
StatusOr<ContentPart> ParsePart(const JsonNode& node, const std::string& where) {
  KU_ASSIGN_OR_RETURN(const std::string* type, OptionalString(node, "type", where));
  if (type == nullptr) return InputError(where + " has no type");
  ContentPart part;
  if (*type == "text") {
    KU_ASSIGN_OR_RETURN(const std::string* text, OptionalString(node, "text", where));
    if (text == nullptr) return InputError(where + " has no text");
    part.text = *text;
    return part;
  }
  constexpr std::string_view kMedia[] = {"image", "image_url", "video", "video_url"};
  if (std::find(std::begin(kMedia), std::end(kMedia), *type) == std::end(kMedia)) {
    return InputError(where + ": type \"" + *type +
                      "\" is not one of text, image, image_url, video, video_url");
  }
  KU_RETURN_IF_ERROR(ParseMedia(node, *type, where, &part));
  return part;
}

Status ParseContent(const JsonNode& node, const std::string& where, Message* message) {
  const JsonNode* content = node.Find("content");
  if (content == nullptr || content->IsNull()) {
    // An assistant message with only tool calls has no content.
    if (message->role == Role::kAssistant) return OkStatus();
    return InputError(where + " has no content");
  }
  if (content->IsString()) {
    message->text = content->text;
    return OkStatus();
  }
  if (!content->IsArray()) return InputError(where + ": content is neither a string nor a list");
  for (const JsonNode& item : content->items) {
    const std::string part_where = where + ", part " + std::to_string(message->parts.size());
    KU_ASSIGN_OR_RETURN(ContentPart part, ParsePart(item, part_where));
    if (part.kind == ContentPart::Kind::kText) message->text += part.text;
    message->parts.push_back(std::move(part));
  }
  return OkStatus();
}

Status ParseToolCalls(const JsonNode& node, const std::string& where, Message* message) {
  const JsonNode* calls = node.Find("tool_calls");
  if (calls == nullptr || calls->IsNull()) return OkStatus();
  if (!calls->IsArray()) return InputError(where + ": tool_calls is not a list");
  for (const JsonNode& item : calls->items) {
    const std::string call_where =
        where + ", tool call " + std::to_string(message->tool_calls.size());
    const JsonNode* function = item.Find("function");
    if (function == nullptr) function = &item;
    KU_ASSIGN_OR_RETURN(const std::string* name, OptionalString(*function, "name", call_where));
    if (name == nullptr) return InputError(call_where + " has no name");
    const JsonNode* arguments = function->Find("arguments");
    if (arguments == nullptr) return InputError(call_where + " has no arguments");
    const bool is_text = arguments->IsString();
    message->tool_calls.push_back(
        {*name, is_text ? arguments->text : PythonJson(*arguments), is_text});
  }
  return OkStatus();
}

void AddReasoning(const std::string& reasoning, JsonNode* source) {
  const JsonNode value{.type = JsonNode::Type::kString, .text = reasoning};
  for (size_t i = 0; i < source->keys.size(); ++i) {
    if (source->keys[i] != "reasoning_content") continue;
    source->items[i] = value;
    return;
  }
  source->keys.emplace_back("reasoning_content");
  source->items.push_back(value);
}

StatusOr<Message> ParseMessage(const JsonNode& node, const std::string& where) {
  if (!node.IsObject()) return InputError(where + " is not an object");
  Message message;
  KU_ASSIGN_OR_RETURN(message.role, ParseRole(node, where));
  KU_RETURN_IF_ERROR(ParseContent(node, where, &message));
  KU_RETURN_IF_ERROR(ParseToolCalls(node, where, &message));
  message.source = node;
  // Servers use different names for the reasoning; templates use the first one.
  for (const char* key : {"reasoning_content", "reasoning"}) {
    KU_ASSIGN_OR_RETURN(const std::string* reasoning, OptionalString(node, key, where));
    if (reasoning == nullptr || message.reasoning.has_value()) continue;
    message.reasoning = *reasoning;
    if (key == std::string_view("reasoning")) AddReasoning(*reasoning, &message.source);
  }
  return message;
}

Status ParseKwargs(const JsonNode* kwargs, ParsedMessages* parsed) {
  if (kwargs == nullptr || kwargs->IsNull()) return OkStatus();
  if (!kwargs->IsObject()) return InputError(Param("chat_template_kwargs") + " is not an object");
  parsed->template_kwargs.type = JsonNode::Type::kObject;
  for (size_t i = 0; i < kwargs->items.size(); ++i) {
    const JsonNode& value = kwargs->items[i];
    if (kwargs->keys[i] != "enable_thinking") {
      parsed->template_kwargs.keys.push_back(kwargs->keys[i]);
      parsed->template_kwargs.items.push_back(value);
    } else if (value.IsBool()) {
      parsed->enable_thinking = value.boolean;
    } else if (!value.IsNull()) {
      return InputError(Param("chat_template_kwargs.enable_thinking") + " is not true or false");
    }
  }
  return OkStatus();
}

// Accepts {"type": "function", "function": {"name"}}, and the function alone, as templates do.
bool HasFunction(const JsonNode& tool) {
  const JsonNode* function = tool.Find("function");
  const JsonNode* name = (function != nullptr ? *function : tool).Find("name");
  return name != nullptr && name->IsString() && !name->text.empty();
}

// Only a text of the assistant can be continued, not a tool call.
Status CheckContinuable(const ParsedMessages& parsed) {
  if (!parsed.continue_final_message) return OkStatus();
  const Message& last = parsed.messages.back();
  if (last.role != Role::kAssistant || !last.tool_calls.empty() || TextOf(last).empty()) {
    return InputError(Param("continue_final_message") +
                      " needs a last message of the assistant that has a text and no tool calls");
  }
  if (!parsed.add_generation_prompt.value_or(false)) return OkStatus();
  return InputError(Param("continue_final_message") + " and " + Param("add_generation_prompt") +
                    " contradict each other");
}

StatusOr<std::optional<bool>> OptionalBool(const JsonNode& root, const char* key) {
  const JsonNode* value = root.Find(key);
  if (value == nullptr || value->IsNull()) return std::optional<bool>();
  if (!value->IsBool()) return InputError(Param(key) + " is not true or false");
  return std::optional<bool>(value->boolean);
}

Status ParseOptions(const JsonNode& root, ParsedMessages* parsed) {
  const JsonNode* tools = root.Find("tools");
  if (tools != nullptr && !tools->IsNull()) {
    if (!tools->IsArray()) return InputError(Param("tools") + " is not a list");
    for (const JsonNode& tool : tools->items) {
      if (!HasFunction(tool)) {
        return InputError(Param("tools[" + std::to_string(parsed->tools_json.size()) + "]") +
                          " has no function with a name");
      }
      parsed->tools_json.push_back(PythonJson(tool));
    }
  }
  if (const JsonNode* documents = root.Find("documents"); documents != nullptr) {
    if (!documents->IsArray() && !documents->IsNull()) {
      return InputError(Param("documents") + " is not a list");
    }
    parsed->documents = *documents;
  }
  KU_ASSIGN_OR_RETURN(parsed->add_generation_prompt, OptionalBool(root, "add_generation_prompt"));
  KU_ASSIGN_OR_RETURN(const std::optional<bool> goes_on,
                      OptionalBool(root, "continue_final_message"));
  parsed->continue_final_message = goes_on.value_or(false);
  KU_RETURN_IF_ERROR(CheckContinuable(*parsed));
  return ParseKwargs(root.Find("chat_template_kwargs"), parsed);
}

}  // namespace

StatusOr<ParsedMessages> ParseMessagesJson(std::string_view json) {
  KU_ASSIGN_OR_RETURN(const JsonNode root, ParseJson(json, StatusCode::kInput, kName));
  StatusOr<ParsedMessages> parsed = ParseMessages(root);
  // Drops the hint: no flag corresponds to a file's content.
  return parsed.ok() ? std::move(parsed) : InputError(parsed.status().message());
}

StatusOr<ParsedMessages> ParseMessages(const JsonNode& root) {
  ParsedMessages parsed;
  const JsonNode* messages = root.IsArray() ? &root : root.Find("messages");
  if (messages != nullptr && !messages->IsArray()) {
    return InputError(Param(kName) + " is not a list");
  }
  if (messages == nullptr) {
    return InputError(Param(kName) +
                      ": neither a list of messages nor an object with \"messages\"");
  }
  if (messages->items.empty()) return InputError(Param(kName) + ": the list is empty");
  for (const JsonNode& item : messages->items) {
    const std::string where = "message " + std::to_string(parsed.messages.size());
    StatusOr<Message> message = ParseMessage(item, where);
    if (!message.ok()) return InputError(Param(kName) + ": " + message.status().message());
    parsed.messages.push_back(std::move(*message));
  }
  KU_RETURN_IF_ERROR(ParseOptions(root, &parsed));
  return parsed;
}

bool IsMessagesField(std::string_view key) {
  constexpr std::string_view kRead[] = {"messages",
                                        "tools",
                                        "documents",
                                        "add_generation_prompt",
                                        "continue_final_message",
                                        "chat_template_kwargs"};
  return std::find(std::begin(kRead), std::end(kRead), key) != std::end(kRead);
}

Status CheckMessagesFields(const JsonNode& root) {
  if (root.Find("messages") == nullptr) return OkStatus();  // ParseMessages says so
  for (const std::string& key : root.keys) {
    const bool is_of_session = key == "version" || key == "model";
    if (is_of_session || IsMessagesField(key)) continue;
    return InputError("unknown field " + Quoted(key));
  }
  return OkStatus();
}

StatusOr<std::string> PythonJson(std::string_view json) {
  KU_ASSIGN_OR_RETURN(const JsonNode root, ParseJson(json, StatusCode::kInput, "JSON"));
  return PythonJson(root);
}

}  // namespace kuiper
