#include "demo/batch_request.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "demo/chat.h"
#include "demo/flag_table.h"
#include "kuiper/io/messages_json.h"

namespace kuiper::demo {
namespace {

constexpr char kChatUrl[] = "/v1/chat/completions";
constexpr char kCompletionsUrl[] = "/v1/completions";

// Fields of a body that are a parameter, and the flag that says what it may be.
constexpr struct {
  const char* field;
  const char* flag;
} kParameters[] = {
    {"max_tokens", "max-tokens"},
    {"max_completion_tokens", "max-tokens"},
    {"temperature", "temp"},
    {"top_p", "top-p"},
    {"top_k", "top-k"},
    {"min_p", "min-p"},
    {"seed", "seed"},
    {"presence_penalty", "presence-penalty"},
    {"frequency_penalty", "frequency-penalty"},
    {"repetition_penalty", "repetition-penalty"},
    {"reasoning_budget", "reasoning-budget"},
};

// Fields with code of their own, and those that change no answer.
constexpr const char* kOtherFields[] = {
    "messages",       "prompt",   "stop",  "ignore_eos", "n",           "beam_width",
    "length_penalty", "stream",   "echo",  "tools",      "tool_choice", "chat_template_kwargs",
    "model",          "metadata", "store", "user"};

Status Bad(const std::string& message) {
  return Status(StatusCode::kInput, message);
}

const JsonNode* Given(const JsonNode& node, const char* key) {
  const JsonNode* value = node.Find(key);
  return value == nullptr || value->IsNull() ? nullptr : value;
}

bool IsNumber(const JsonNode& node) {
  return node.type == JsonNode::Type::kInt || node.type == JsonNode::Type::kFloat;
}

Status CheckFields(const JsonNode& body) {
  for (const std::string& key : body.keys) {
    const bool parameter = std::any_of(std::begin(kParameters), std::end(kParameters),
                                       [&](const auto& p) { return key == p.field; });
    const bool other = std::any_of(std::begin(kOtherFields), std::end(kOtherFields),
                                   [&](const char* field) { return key == field; });
    if (!parameter && !other && !body.Find(key)->IsNull()) {
      return Bad("body." + OneLine(key) + " is not available");
    }
  }
  for (const char* key : {"stream", "echo"}) {
    const JsonNode* value = Given(body, key);
    if (value != nullptr && !(value->IsBool() && !value->boolean)) {
      return Bad(std::string("body.") + key + " must be false");
    }
  }
  const JsonNode* choice = Given(body, "tool_choice");
  if (choice != nullptr && !(choice->IsString() && choice->text == "auto")) {
    return Bad("body.tool_choice must be \"auto\"");
  }
  return OkStatus();
}

Status ParseParameters(const JsonNode& body, Generation* generation) {
  for (const auto& [field, flag] : kParameters) {
    const JsonNode* value = Given(body, field);
    if (value == nullptr) continue;
    const std::string name = std::string("body.") + field;
    if (!IsNumber(*value)) return Bad(name + " is not a number");
    const Status set = SetParameter(flag, name, value->text, generation);
    if (!set.ok()) return Bad(set.message());
  }
  return OkStatus();
}

Status ParseStop(const JsonNode& body, std::vector<std::string>* stop) {
  const JsonNode* value = Given(body, "stop");
  if (value == nullptr) return OkStatus();
  stop->clear();
  const auto take = [&](const JsonNode& item) {
    if (!item.IsString() || item.text.empty()) return false;
    stop->push_back(item.text);
    return true;
  };
  const bool good =
      value->IsArray() ? std::all_of(value->items.begin(), value->items.end(), take) : take(*value);
  return good ? OkStatus() : Bad("body.stop is neither a string nor a list of strings");
}

// The number in a field, as the flag it stands for allows it; left out, `value` stays.
template <typename T>
Status ParseNumber(const JsonNode& body, const char* field, const char* flag, T* value) {
  const JsonNode* node = Given(body, field);
  if (node == nullptr) return OkStatus();
  const std::string name = std::string("body.") + field;
  if (!IsNumber(*node)) return Bad(name + " is not a number");
  const StatusOr<std::string> checked = CheckFlagValue(*FindFlag(flag), name, node->text);
  if (!checked.ok()) return Bad(checked.status().message());
  *value = static_cast<T>(std::strtod(checked->c_str(), nullptr));
  return OkStatus();
}

Status ParseChoices(const JsonNode& body, BatchRequest* request) {
  KU_RETURN_IF_ERROR(ParseNumber(body, "n", "num-samples", &request->num_choices));
  KU_RETURN_IF_ERROR(ParseNumber(body, "beam_width", "beam-width", &request->beam_width));
  KU_RETURN_IF_ERROR(
      ParseNumber(body, "length_penalty", "length-penalty", &request->length_penalty));
  const bool is_search = request->beam_width > 1;
  if (is_search && request->num_choices > request->beam_width) {
    return Bad("body.n must be at most body.beam_width");
  }
  if (!is_search && Given(body, "length_penalty") != nullptr) {
    return Bad("body.length_penalty needs a body.beam_width above 1");
  }
  return OkStatus();
}

Status ParsePrompt(const JsonNode& prompt, BatchRequest* request) {
  if (prompt.IsString()) {
    if (prompt.text.empty()) return Bad("body.prompt is empty");
    request->input.text = prompt.text;
    return OkStatus();
  }
  if (!prompt.IsArray() || prompt.items.empty()) {
    return Bad("body.prompt is neither a string nor a list of token ids");
  }
  for (const JsonNode& item : prompt.items) {
    const std::optional<int64_t> id = item.AsInt();
    if (!id.has_value() || *id < 0 || *id > INT32_MAX) {
      return Bad("body.prompt is neither a string nor a list of token ids");
    }
    request->ids.push_back(static_cast<int32_t>(*id));
  }
  return OkStatus();
}

// The URL says what the body is; without one the body does.
Status ParseKind(const JsonNode& line, const JsonNode& body, BatchRequest* request) {
  const JsonNode* method = Given(line, "method");
  if (method != nullptr && !(method->IsString() && method->text == "POST")) {
    return Bad("method must be \"POST\"");
  }
  request->chat = Given(body, "messages") != nullptr;
  if (request->chat == (Given(body, "prompt") != nullptr)) {
    return Bad("body must have either messages or prompt");
  }
  const JsonNode* url = Given(line, "url");
  if (url == nullptr) return OkStatus();
  if (url->IsString() && url->text == (request->chat ? kChatUrl : kCompletionsUrl)) {
    return OkStatus();
  }
  return Bad(std::string("url must be \"") + kChatUrl + "\" for messages and \"" + kCompletionsUrl +
             "\" for a prompt");
}

}  // namespace

std::optional<std::string> CustomIdOf(const JsonNode& line) {
  const JsonNode* id = line.Find("custom_id");
  return id != nullptr && id->IsString() ? std::optional(id->text) : std::nullopt;
}

StatusOr<BatchRequest> ParseBatchRequest(const JsonNode& line, const Options& defaults) {
  if (!line.IsObject()) return Bad("the line is not an object");
  if (!CustomIdOf(line).has_value()) return Bad("the line has no custom_id");
  const JsonNode* body = line.Find("body");
  if (body == nullptr || !body->IsObject()) return Bad("the line has no body");
  BatchRequest request;
  request.generation = defaults.generation;
  request.stop = defaults.stop;
  request.ignore_eos = defaults.ignore_eos;
  KU_RETURN_IF_ERROR(ParseKind(line, *body, &request));
  KU_RETURN_IF_ERROR(CheckFields(*body));
  KU_RETURN_IF_ERROR(ParseParameters(*body, &request.generation));
  KU_RETURN_IF_ERROR(ParseStop(*body, &request.stop));
  KU_RETURN_IF_ERROR(ParseChoices(*body, &request));
  if (const JsonNode* ignore = Given(*body, "ignore_eos"); ignore != nullptr) {
    if (!ignore->IsBool()) return Bad("body.ignore_eos is not true or false");
    request.ignore_eos = ignore->boolean;
  }
  if (request.chat) {
    KU_ASSIGN_OR_RETURN(ParsedMessages parsed, ParseMessages(*body));
    request.input.messages = std::move(parsed.messages);
    request.input.tools_json = std::move(parsed.tools_json);
    request.input.enable_thinking = parsed.enable_thinking;
  } else {
    KU_RETURN_IF_ERROR(ParsePrompt(*body->Find("prompt"), &request));
  }
  return request;
}

}  // namespace kuiper::demo
