#include "kuiper/server/responses_api.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/chat/chat_request.h"
#include "kuiper/chat/foreign_fields.h"
#include "kuiper/server/body_fields.h"
#include "kuiper/server/json_fields.h"

namespace kuiper {
namespace {

// Converts a string, or a list of input texts, output texts and images.
StatusOr<JsonNode> ContentOfItem(const JsonNode& content) {
  if (content.IsString()) return content;
  if (!content.IsArray()) return InputError(Param("content") + " is neither a string nor a list");
  std::vector<JsonNode> parts;
  for (const JsonNode& part : content.items) {
    const std::string type = TextOfField(part, "type");
    if (type == "input_image" && part.Find("image_url") != nullptr) {
      parts.push_back(ImagePart(TextOfField(part, "image_url")));
    } else if (type == "input_text" || type == "output_text" || type == "text") {
      parts.push_back(TextPart(TextOfField(part, "text")));
    } else {
      return UnsupportedField("input", "it holds a part of the type \"" + type + "\"");
    }
  }
  return ContentOf(std::move(parts));
}

// Appends a tool call; consecutive calls belong to one message.
void AddCall(const JsonNode& item, std::vector<JsonNode>* messages) {
  const JsonNode* arguments = item.Find("arguments");
  JsonNode call = ObjectNode(
      {{"id", StringNode(TextOfField(item, "call_id"))},
       {"type", StringNode("function")},
       {"function",
        ObjectNode({{"name", StringNode(TextOfField(item, "name"))},
                    {"arguments", arguments == nullptr ? StringNode("") : *arguments}})}});
  const bool continues_message =
      !messages->empty() && TextOfField(messages->back(), "role") == "assistant";
  if (!continues_message) {
    messages->push_back(
        ObjectNode({{"role", StringNode("assistant")}, {"content", StringNode("")}}));
  }
  JsonNode calls = TakeField(&messages->back(), "tool_calls");
  if (calls.IsNull()) calls = ListNode();
  calls.items.push_back(std::move(call));
  SetField(&messages->back(), "tool_calls", std::move(calls));
}

Status AddItem(const JsonNode& item, std::vector<JsonNode>* messages) {
  const std::string type = TextOfField(item, "type");
  if (type == "reasoning") return OkStatus();  // templates strip it from history
  if (type == "function_call") {
    AddCall(item, messages);
    return OkStatus();
  }
  if (!type.empty() && type != "message" && type != "function_call_output") {
    return UnsupportedField("input", "it holds an item of the type \"" + type + "\"");
  }
  const JsonNode* content = item.Find(type == "function_call_output" ? "output" : "content");
  KU_ASSIGN_OR_RETURN(JsonNode said, ContentOfItem(content == nullptr ? JsonNode() : *content));
  if (type == "function_call_output") {
    messages->push_back(ObjectNode({{"role", StringNode("tool")},
                                    {"tool_call_id", StringNode(TextOfField(item, "call_id"))},
                                    {"content", std::move(said)}}));
    return OkStatus();
  }
  messages->push_back(
      ObjectNode({{"role", StringNode(TextOfField(item, "role"))}, {"content", std::move(said)}}));
  return OkStatus();
}

// {"type": "function", "name", "description", "parameters", "strict"}; others stay as they are.
StatusOr<JsonNode> ToolsOf(JsonNode tools) {
  std::vector<JsonNode> list;
  if (!tools.IsArray()) return InputError(Param("tools") + " is not a list");
  for (JsonNode& tool : tools.items) {
    if (TextOfField(tool, "type") != "function") {
      list.push_back(std::move(tool));
      continue;
    }
    for (const char* key : {"type", "strict"}) TakeField(&tool, key);
    list.push_back(ObjectNode({{"type", StringNode("function")}, {"function", std::move(tool)}}));
  }
  return ListNode(std::move(list));
}

// Refuses fields that need state between requests or background work.
Status CheckStateless(JsonNode* body) {
  for (const char* field : {"previous_response_id", "conversation", "prompt", "background"}) {
    if (IsNothing(TakeField(body, field))) continue;
    return UnsupportedField(field, "nothing is kept between requests");
  }
  return OkStatus();
}

// {"format", "verbosity"}
Status TakeText(JsonNode* body) {
  JsonNode text = TakeField(body, "text");
  if (!text.IsNull() && !text.IsObject()) return InputError(Param("text") + " is not an object");
  if (JsonNode format = TakeField(&text, "format"); !format.IsNull()) {
    SetField(body, "response_format", std::move(format));
  }
  KU_RETURN_IF_ERROR(CheckForeignField("verbosity", TakeField(&text, "verbosity"), {}));
  return CheckRest("text", text);
}

// "include" lists extra contents of the response. Most belong to tools that the server does not
// have, so they add nothing.
Status TakeInclude(JsonNode* body) {
  constexpr std::string_view kLogprobs = "message.output_text.logprobs";
  constexpr std::string_view kOthers[] = {
      "code_interpreter_call.outputs", "computer_call_output.output.image_url",
      "file_search_call.results",      "message.input_image.image_url",
      "reasoning.encrypted_content",   "web_search_call.action.sources",
      "web_search_call.results"};
  const JsonNode include = TakeField(body, "include");
  if (!include.IsNull() && !include.IsArray()) {
    return InputError(Param("include") + " is not a list");
  }
  const JsonNode* top = GivenField(*body, "top_logprobs");
  bool wants_logprobs = top != nullptr && !IsNothing(*top);
  for (const JsonNode& word : include.items) {
    wants_logprobs |= word.text == kLogprobs;
    if (word.text == kLogprobs || std::ranges::find(kOthers, word.text) != std::end(kOthers)) {
      continue;
    }
    return InputError(Param("include") + " holds " + QuotedJson(word) + ", which is not available");
  }
  if (wants_logprobs) SetField(body, "logprobs", BoolNode(true));
  return OkStatus();
}

}  // namespace

StatusOr<JsonNode> ChatOfResponses(JsonNode body) {
  if (!body.IsObject()) return InputError("the body is not an object");
  KU_RETURN_IF_ERROR(CheckStateless(&body));
  const JsonNode instructions = TakeField(&body, "instructions"), input = TakeField(&body, "input");
  std::vector<JsonNode> messages;
  if (!instructions.IsNull() && !instructions.IsString()) {
    return InputError(Param("instructions") + " is not a string");
  }
  if (instructions.IsString()) {
    messages.push_back(ObjectNode({{"role", StringNode("system")}, {"content", instructions}}));
  }
  if (input.IsString()) {
    messages.push_back(ObjectNode({{"role", StringNode("user")}, {"content", input}}));
  } else if (input.IsArray()) {
    for (const JsonNode& item : input.items) KU_RETURN_IF_ERROR(AddItem(item, &messages));
  } else {
    return InputError(Param("input") + " is neither a string nor a list");
  }
  KU_RETURN_IF_ERROR(
      TakeUnavailable(&body, {"messages", "n", "beam_width", "logprobs", "prompt_logprobs"}));
  KU_RETURN_IF_ERROR(TakeText(&body));
  KU_RETURN_IF_ERROR(TakeInclude(&body));
  SetField(&body, "messages", ListNode(std::move(messages)));
  if (JsonNode tools = TakeField(&body, "tools"); !tools.IsNull()) {
    KU_ASSIGN_OR_RETURN(tools, ToolsOf(std::move(tools)));
    SetField(&body, "tools", std::move(tools));
  }
  return body;
}

}  // namespace kuiper
