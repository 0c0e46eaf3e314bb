#include "kuiper/server/messages_api.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/base/to_json.h"
#include "kuiper/server/body_fields.h"
#include "kuiper/server/json_fields.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

// Returns the text of a string or of a list of text blocks.
StatusOr<std::string> TextOfContent(const JsonNode& content, const std::string& where) {
  if (content.IsString() || content.IsNull()) return content.text;
  if (!content.IsArray()) return InputError(where + " is neither a string nor a list");
  std::string text;
  for (const JsonNode& block : content.items) {
    if (TextOfField(block, "type") != "text") {
      return Status(StatusCode::kUnavailable, where + " contains a block that is not text");
    }
    text += TextOfField(block, "text");
  }
  return text;
}

// The converted blocks of one message. Tool results precede the user's text.
struct Blocks {
  std::vector<JsonNode> parts;  // texts and images
  std::string reasoning;
  std::vector<JsonNode> calls, results;
};

// {"source": {"type": "base64", "media_type", "data"}} or {"source": {"type": "url", "url"}}
StatusOr<JsonNode> ImageOfBlock(const JsonNode& block, const std::string& where) {
  const JsonNode* source = block.Find("source");
  const std::string type = source == nullptr ? "" : TextOfField(*source, "type");
  if (type == "url") return ImagePart(TextOfField(*source, "url"));
  if (type != "base64") {
    return Status(
        StatusCode::kUnavailable,
        where + " contains an image that is neither base64 nor a URL, which is not supported");
  }
  return ImagePart("data:" + TextOfField(*source, "media_type") + ";base64," +
                   TextOfField(*source, "data"));
}

// Converts a text or image block.
StatusOr<JsonNode> PartOfBlock(const JsonNode& block, const std::string& where) {
  const std::string type = TextOfField(block, "type");
  if (type == "image") return ImageOfBlock(block, where);
  if (type == "text") return TextPart(TextOfField(block, "text"));
  return Status(StatusCode::kUnavailable,
                where + " holds a block of the type \"" + type + "\", which is not supported");
}

StatusOr<JsonNode> ResultOfBlock(const JsonNode& block) {
  const JsonNode* content = block.Find("content");
  if (content == nullptr || content->IsNull()) return StringNode("");
  if (content->IsString()) return *content;
  if (!content->IsArray()) return InputError(Param("content") + " is neither a string nor a list");
  std::vector<JsonNode> parts;
  for (const JsonNode& item : content->items) {
    KU_ASSIGN_OR_RETURN(JsonNode part, PartOfBlock(item, "a tool_result"));
    parts.push_back(std::move(part));
  }
  return ContentOf(std::move(parts));
}

Status AddBlock(const JsonNode& block, const std::string& where, Blocks* blocks) {
  const std::string type = TextOfField(block, "type");
  if (type == "thinking") {
    blocks->reasoning += TextOfField(block, "thinking");
  } else if (type == "tool_use") {
    const JsonNode* input = block.Find("input");
    blocks->calls.push_back(ObjectNode(
        {{"id", StringNode(TextOfField(block, "id"))},
         {"type", StringNode("function")},
         {"function", ObjectNode({{"name", StringNode(TextOfField(block, "name"))},
                                  {"arguments", input == nullptr ? ObjectNode() : *input}})}}));
  } else if (type == "tool_result") {
    KU_ASSIGN_OR_RETURN(JsonNode content, ResultOfBlock(block));
    blocks->results.push_back(
        ObjectNode({{"role", StringNode("tool")},
                    {"tool_call_id", StringNode(TextOfField(block, "tool_use_id"))},
                    {"content", std::move(content)}}));
  } else if (type != "redacted_thinking") {
    KU_ASSIGN_OR_RETURN(JsonNode part, PartOfBlock(block, where));
    blocks->parts.push_back(std::move(part));
  }
  return OkStatus();
}

Status AddMessage(const JsonNode& message, const std::string& where, std::vector<JsonNode>* out) {
  const std::string role = TextOfField(message, "role");
  if (role != "user" && role != "assistant") {
    return InputError(where + ": " + Param("role") + " is neither \"user\" nor \"assistant\"");
  }
  const JsonNode* content = message.Find("content");
  Blocks blocks;
  if (content != nullptr && content->IsString()) {
    blocks.parts.push_back(TextPart(content->text));
  } else if (content == nullptr || !content->IsArray()) {
    return InputError(where + ": " + Param("content") + " is neither a string nor a list");
  } else {
    for (const JsonNode& block : content->items) {
      KU_RETURN_IF_ERROR(AddBlock(block, where, &blocks));
    }
  }
  const bool has_results = !blocks.results.empty();
  for (JsonNode& result : blocks.results) out->push_back(std::move(result));
  if (has_results && blocks.parts.empty()) return OkStatus();
  JsonNode chat =
      ObjectNode({{"role", StringNode(role)}, {"content", ContentOf(std::move(blocks.parts))}});
  if (!blocks.reasoning.empty()) {
    SetField(&chat, "reasoning_content", StringNode(std::move(blocks.reasoning)));
  }
  if (!blocks.calls.empty()) SetField(&chat, "tool_calls", ListNode(std::move(blocks.calls)));
  out->push_back(std::move(chat));
  return OkStatus();
}

// {"name", "description", "input_schema"} -> {"type": "function", "function": {...}}
StatusOr<JsonNode> ToolsOf(JsonNode tools) {
  std::vector<JsonNode> list;
  if (!tools.IsArray()) return InputError(Param("tools") + " is not a list");
  for (JsonNode& tool : tools.items) {
    if (tool.Find("input_schema") == nullptr) {  // a server-side tool
      list.push_back(std::move(tool));
      continue;
    }
    for (const char* key : {"type", "cache_control", "strict"}) TakeField(&tool, key);
    RenameField(&tool, "input_schema", "parameters");
    list.push_back(ObjectNode({{"type", StringNode("function")}, {"function", std::move(tool)}}));
  }
  return ListNode(std::move(list));
}

Status SetChoice(const JsonNode& choice, JsonNode* chat) {
  if (choice.IsNull()) return OkStatus();
  const std::string type = TextOfField(choice, "type");
  const JsonNode* one = choice.Find("disable_parallel_tool_use");
  if (one != nullptr && one->boolean) SetField(chat, "parallel_tool_calls", BoolNode(false));
  if (type != "auto" && type != "none") {
    return Status(StatusCode::kUnavailable, Param("tool_choice") +
                                                " is not supported: there is no constrained "
                                                "decoding; \"auto\" and \"none\" are");
  }
  SetField(chat, "tool_choice", StringNode(type));
  return OkStatus();
}

class MessagesWriter : public AnswerWriter {
 public:
  explicit MessagesWriter(AnswerTitle title) : title_(std::move(title)) {}

  std::string Begin(const AnswerParts& parts) override;
  std::string OnDelta(const AnswerDelta& delta, const AnswerParts& parts) override;
  std::string End(const AnswerParts& parts) override;
  std::string Failed(const ApiError& error) override {
    return ServerEvent("error", MessagesError(error));
  }
  Json Whole(const AnswerParts& parts) const override;

 private:
  enum class Block { kNone, kThinking, kText };

  Json Message(Json content, Json reason, Json sequence, Json usage) const;
  // Unless the open block is of this kind, ends it and begins a new one.
  std::string SwitchBlock(Block kind);
  std::string Delta(const char* type, const char* key, const std::string& text) const;
  static Json Usage(const AnswerParts& parts);
  static const char* StopReason(const AnswerParts::Choice& choice);
  static Json StopSequence(const AnswerParts::Choice& choice);

  const AnswerTitle title_;
  Block open_ = Block::kNone;
  int index_ = 0;  // index of the open block, or of the next one
};

// As in Anthropic's API, input_tokens excludes the tokens read from the cache.
Json MessagesWriter::Usage(const AnswerParts& parts) {
  return {{"input_tokens", parts.num_prompt_tokens() - parts.num_cached_tokens()},
          {"cache_read_input_tokens", parts.num_cached_tokens()},
          {"cache_creation_input_tokens", 0},
          {"output_tokens", parts.num_generated_tokens()}};
}

const char* MessagesWriter::StopReason(const AnswerParts::Choice& choice) {
  const std::string finish = choice.finish();
  if (finish == "tool_calls") return "tool_use";
  if (finish == "length") return "max_tokens";
  return choice.completion->finish == FinishReason::kStopString ? "stop_sequence" : "end_turn";
}

Json MessagesWriter::StopSequence(const AnswerParts::Choice& choice) {
  const std::string& found = choice.completion->stop_string;
  return choice.completion->finish == FinishReason::kStopString ? Json(found) : Json();
}

Json MessagesWriter::Message(Json content, Json reason, Json sequence, Json usage) const {
  return {{"id", "msg_" + title_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", title_.model},
          {"content", std::move(content)},
          {"stop_reason", std::move(reason)},
          {"stop_sequence", std::move(sequence)},
          {"usage", std::move(usage)}};
}

std::string MessagesWriter::Begin(const AnswerParts& parts) {
  const Json message = Message(Json::array(), nullptr, nullptr, Usage(parts));
  return ServerEvent("message_start", {{"type", "message_start"}, {"message", message}});
}

std::string MessagesWriter::SwitchBlock(Block kind) {
  if (kind == open_) return "";
  std::string text;
  if (open_ != Block::kNone) {
    text = ServerEvent("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }
  open_ = kind;
  if (kind == Block::kNone) return text;
  const Json block = kind == Block::kText
                         ? Json{{"type", "text"}, {"text", ""}}
                         : Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  return text + ServerEvent(
                    "content_block_start",
                    {{"type", "content_block_start"}, {"index", index_}, {"content_block", block}});
}

std::string MessagesWriter::Delta(const char* type, const char* key,
                                  const std::string& text) const {
  return ServerEvent("content_block_delta", {{"type", "content_block_delta"},
                                             {"index", index_},
                                             {"delta", {{"type", type}, {key, text}}}});
}

std::string MessagesWriter::OnDelta(const AnswerDelta& delta, const AnswerParts&) {
  std::string text;
  if (!delta.reasoning.empty()) {
    text += SwitchBlock(Block::kThinking);
    text += Delta("thinking_delta", "thinking", delta.reasoning);
  }
  if (!delta.text.empty()) {
    text += SwitchBlock(Block::kText);
    text += Delta("text_delta", "text", delta.text);
  }
  for (const CallPart& call : delta.calls) {
    text += SwitchBlock(Block::kNone);
    text += ServerEvent("content_block_start", {{"type", "content_block_start"},
                                                {"index", index_},
                                                {"content_block",
                                                 {{"type", "tool_use"},
                                                  {"id", call.id},
                                                  {"name", call.call.name},
                                                  {"input", Json::object()}}}});
    text += Delta("input_json_delta", "partial_json", call.call.arguments);
    text +=
        ServerEvent("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }
  return text;
}

std::string MessagesWriter::End(const AnswerParts& parts) {
  std::string text = SwitchBlock(Block::kNone);
  const AnswerParts::Choice& choice = parts.choices().at(0);
  const Json delta = {{"stop_reason", StopReason(choice)}, {"stop_sequence", StopSequence(choice)}};
  text += ServerEvent("message_delta",
                      {{"type", "message_delta"}, {"delta", delta}, {"usage", Usage(parts)}});
  return text + ServerEvent("message_stop", {{"type", "message_stop"}});
}

Json MessagesWriter::Whole(const AnswerParts& parts) const {
  const AnswerParts::Choice& choice = parts.choices().at(0);
  Json content = Json::array();
  if (!choice.reasoning.empty()) {
    content.push_back({{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", ""}});
  }
  if (!choice.text.empty()) content.push_back({{"type", "text"}, {"text", choice.text}});
  for (const CallPart& call : choice.calls) {
    // If the arguments are not a JSON object, wrap their text in one.
    const StatusOr<JsonNode> given =
        ParseJson(call.call.arguments, StatusCode::kInput, "arguments");
    Json input = {{"arguments", call.call.arguments}};
    if (given.ok() && given->IsObject()) input = ToJson(*given);
    content.push_back({{"type", "tool_use"},
                       {"id", call.id},
                       {"name", call.call.name},
                       {"input", std::move(input)}});
  }
  return Message(std::move(content), StopReason(choice), StopSequence(choice), Usage(parts));
}

}  // namespace

StatusOr<JsonNode> ChatOfMessages(JsonNode body) {
  if (!body.IsObject()) return InputError("the body is not an object");
  if (GivenField(body, "max_tokens") == nullptr)
    return InputError(Param("max_tokens") + " is missing");
  const JsonNode system = TakeField(&body, "system"), messages = TakeField(&body, "messages");
  KU_ASSIGN_OR_RETURN(std::string system_text, TextOfContent(system, Param("system")));
  std::vector<JsonNode> list;
  if (!system.IsNull()) {
    list.push_back(ObjectNode(
        {{"role", StringNode("system")}, {"content", StringNode(std::move(system_text))}}));
  }
  if (!messages.IsArray()) return InputError(Param("messages") + " is not a list");
  for (const JsonNode& message : messages.items) {
    KU_RETURN_IF_ERROR(AddMessage(message, "message " + std::to_string(list.size()), &list));
  }
  // If the last message is the assistant's, the answer continues it.
  if (!list.empty() && TextOfField(list.back(), "role") == "assistant" &&
      !TextOfField(list.back(), "content").empty() && list.back().Find("tool_calls") == nullptr) {
    TakeField(&body, "continue_final_message");
    SetField(&body, "continue_final_message", BoolNode(true));
  }
  SetField(&body, "messages", ListNode(std::move(list)));
  if (JsonNode tools = TakeField(&body, "tools"); !tools.IsNull()) {
    KU_ASSIGN_OR_RETURN(tools, ToolsOf(std::move(tools)));
    SetField(&body, "tools", std::move(tools));
  }
  KU_RETURN_IF_ERROR(SetChoice(TakeField(&body, "tool_choice"), &body));
  KU_RETURN_IF_ERROR(TakeUnavailable(&body, {"n", "beam_width", "logprobs", "prompt_logprobs"}));
  return body;
}

Json MessagesError(const ApiError& error) {
  Json body = {{"type", "error"},
               {"error", {{"type", ErrorType(error.status)}, {"message", error.message}}}};
  // The server is stateless; this code makes clients send whole conversations.
  if (error.param == "thread") {
    body["error"]["details"] = {{"error_code", "thread_unsupported_request"}};
  }
  return body;
}

std::unique_ptr<AnswerWriter> MakeMessagesWriter(const PreparedRequest&, AnswerTitle title,
                                                 const Tokenizer&, ReasoningField) {
  return std::make_unique<MessagesWriter>(std::move(title));
}

}  // namespace kuiper
