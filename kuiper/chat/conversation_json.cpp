#include "kuiper/chat/conversation_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/base/to_json.h"
#include "kuiper/io/messages_json.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

Json PartToJson(const ContentPart& part) {
  if (part.kind == ContentPart::Kind::kText) return {{"type", "text"}, {"text", part.text}};
  const char* kind = part.kind == ContentPart::Kind::kVideo ? "video" : "image";
  Json json = {{"type", kind}, {kind, part.text}};
  if (!part.digest.empty()) json["digest"] = part.digest;
  if (part.fps.has_value()) json["fps"] = *part.fps;
  return json;
}

Json PartsToJson(const std::vector<ContentPart>& parts) {
  Json list = Json::array();
  for (const ContentPart& part : parts) list.push_back(PartToJson(part));
  return list;
}

Json MessageToJson(const Message& message) {
  // The given JSON has fields that only a template reads, so keep it.
  if (message.source.IsObject()) {
    Json given = ToJson(message.source);
    // Paths may have been relative, and there are digests.
    if (HasMedia(message)) given["content"] = PartsToJson(message.parts);
    return given;
  }
  Json json = {{"role", RoleName(message.role)}};
  json["content"] = message.parts.empty() ? Json(message.text) : PartsToJson(message.parts);
  if (message.reasoning.has_value()) json["reasoning_content"] = *message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    const StatusOr<JsonNode> parsed =
        ParseJson(call.arguments_json, StatusCode::kInput, "arguments");
    const bool as_text = call.arguments_are_text || !parsed.ok();
    const Json arguments = as_text ? Json(call.arguments_json) : ToJson(*parsed);
    json["tool_calls"].push_back(
        {{"type", "function"}, {"function", {{"name", call.name}, {"arguments", arguments}}}});
  }
  return json;
}

}  // namespace

std::string ConversationJson(const Conversation& conversation, const std::string& model) {
  Json json = {{"version", 1}, {"model", model}, {"messages", Json::array()}};
  for (const Message& message : conversation.Messages()) {
    json["messages"].push_back(MessageToJson(message));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

StatusOr<Conversation> ParseConversation(const std::string& text) {
  Conversation conversation;
  // ParseMessages refuses an empty list.
  KU_ASSIGN_OR_RETURN(const JsonNode root, ParseJson(text, StatusCode::kInput, "messages"));
  const JsonNode* messages = root.Find("messages");
  if (messages != nullptr && messages->IsArray() && messages->items.empty()) return conversation;
  KU_ASSIGN_OR_RETURN(ParsedMessages parsed, ParseMessages(root));
  // An empty system message is how SetSystem("") was saved.
  const Message& first = parsed.messages[0];
  const bool no_system = first.role == Role::kSystem && first.parts.empty() && first.text.empty() &&
                         first.source.keys.size() <= 2;
  if (no_system) parsed.messages.erase(parsed.messages.begin());
  conversation.SetMessages(std::move(parsed.messages));
  if (no_system) conversation.SetSystem("");
  return conversation;
}

}  // namespace kuiper
