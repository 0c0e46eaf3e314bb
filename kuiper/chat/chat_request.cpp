#include "kuiper/chat/chat_request.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/foreign_fields.h"
#include "kuiper/chat/other_names.h"
#include "kuiper/chat/parameters.h"

namespace kuiper {
namespace {

// Fields that are neither parameters nor part of messages.
constexpr const char* kOtherFields[] = {"prompt",      "stream", "echo",
                                        "tool_choice", "model",  "add_special_tokens"};

constexpr int kMaxChoices = 128;  // OpenAI's limit; keeps one request from blocking the others

// Returns the known fields except those of messages.
std::vector<std::string_view> KnownFields() {
  std::vector<std::string_view> fields(std::begin(kOtherFields), std::end(kOtherFields));
  for (const Parameter& parameter : Parameters()) {
    if (parameter.in_bodies) fields.emplace_back(parameter.name);
  }
  return fields;
}

// Returns the parameter that other servers call `name`; null if there is none.
const Parameter* ParameterOfOtherName(std::string_view name) {
  const std::string_view here = KuiperName(name);
  const Parameter* parameter = here == name ? nullptr : FindParameter(here);
  return parameter != nullptr && parameter->in_bodies ? parameter : nullptr;
}

bool IsSameNumber(const JsonNode& body, const char* a, const char* b) {
  const JsonNode *one = GivenField(body, a), *other = GivenField(body, b);
  return one != nullptr && other != nullptr && one->AsInt().has_value() &&
         one->AsInt() == other->AsInt();
}

Status CheckFields(const JsonNode& body) {
  static const std::vector<std::string_view> known = KnownFields();
  for (const std::string& key : body.keys) {
    if (IsMessagesField(key) || ParameterOfOtherName(key) != nullptr) continue;
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (key == "best_of" && IsSameNumber(body, "best_of", "n")) continue;  // selects all n of n
    KU_RETURN_IF_ERROR(CheckForeignField(key, *body.Find(key), known));
  }
  for (const char* key : {"stream", "echo"}) {
    const JsonNode* value = GivenField(body, key);
    if (value != nullptr && !(value->IsBool() && !value->boolean)) {
      return InputError(Param(key) + " must be false");
    }
  }
  const JsonNode* choice = GivenField(body, "tool_choice");
  if (choice != nullptr && !(choice->IsString() && choice->text == "auto")) {
    return InputError(Param("tool_choice") + " must be \"auto\"");
  }
  return OkStatus();
}

// Parses a string or a list of strings.
Status ParseStrings(const JsonNode& node, const std::string& spelled,
                    std::vector<std::string>* strings) {
  strings->clear();
  const auto take = [&](const JsonNode& item) {
    strings->push_back(item.text);
    return item.IsString();
  };
  const bool good =
      node.IsArray() ? std::all_of(node.items.begin(), node.items.end(), take) : take(node);
  if (!good) return InputError(spelled + " is neither a string nor a list of strings");
  const bool has_empty = std::find(strings->begin(), strings->end(), "") != strings->end();
  return has_empty ? InputError(spelled + " has an empty string") : OkStatus();
}

// Parses a list of token ids.
bool ParseIds(const JsonNode& node, std::vector<int32_t>* ids) {
  ids->clear();
  return node.IsArray() && std::all_of(node.items.begin(), node.items.end(), [&](const auto& item) {
           const std::optional<int64_t> id = item.AsInt();
           ids->push_back(static_cast<int32_t>(id.value_or(0)));
           return id.has_value() && *id >= 0 && *id <= INT32_MAX;
         });
}

// Parses {"ID": NUMBER} through the text syntax of the parameter.
Status ParseMap(const JsonNode& node, const Parameter& parameter, const std::string& spelled,
                std::map<int, float>* map) {
  if (!node.IsObject()) return InputError(spelled + " is not an object");
  if (node.keys.size() > kMaxLogitBiases) {
    return InputError(spelled + " must be at most " + std::to_string(kMaxLogitBiases) + " ids");
  }
  map->clear();
  std::string text;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const JsonNode& value = node.items[i];
    if (!value.IsNumber() || node.keys[i].find_first_of(",:") != std::string::npos) {
      return InputError(spelled + " does not map token ids to numbers");
    }
    text.append(text.empty() ? "" : ",").append(node.keys[i]).append(":").append(value.text);
  }
  if (text.empty()) return OkStatus();
  const Status set = SetVariable(map, parameter.limits, spelled, text);
  return set.ok() ? set : InputError(set.message(Param));
}

Status ParseParameter(const JsonNode& body, const char* field, const Parameter& parameter,
                      Request* request) {
  const JsonNode* node = GivenField(body, field);
  if (node == nullptr) return OkStatus();
  const std::string spelled = Param(field);
  const Variable variable = parameter.of(*request);
  if (auto* const* strings = std::get_if<std::vector<std::string>*>(&variable)) {
    return ParseStrings(*node, spelled, *strings);
  }
  if (auto* const* ids = std::get_if<std::vector<int>*>(&variable)) {
    if (node->items.size() > kMaxStopTokens) {
      return InputError(spelled + " must be at most " + std::to_string(kMaxStopTokens) + " ids");
    }
    return ParseIds(*node, *ids) ? OkStatus() : InputError(spelled + " is not a list of token ids");
  }
  if (auto* const* map = std::get_if<std::map<int, float>*>(&variable)) {
    return ParseMap(*node, parameter, spelled, *map);
  }
  if (bool* const* on = std::get_if<bool*>(&variable)) {
    if (!node->IsBool()) return InputError(spelled + " is not true or false");
    **on = node->boolean;
    return OkStatus();
  }
  const bool is_word =
      parameter.limits.automatic.has_value() && node->IsString() && node->text == "auto";
  if (!is_word && node->type != JsonNode::Type::kInt && node->type != JsonNode::Type::kFloat) {
    return InputError(spelled + " is not a number");
  }
  const Status set = SetVariable(variable, parameter.limits, spelled, node->text);
  return set.ok() ? set : InputError(set.message(Param));
}

Status ParseParameters(const JsonNode& body, Request* request) {
  for (const Parameter& parameter : Parameters()) {
    if (!parameter.in_bodies) continue;
    KU_RETURN_IF_ERROR(ParseParameter(body, parameter.name.c_str(), parameter, request));
  }
  for (const std::string& key : body.keys) {
    const Parameter* parameter = ParameterOfOtherName(key);
    if (parameter == nullptr || GivenField(body, key.c_str()) == nullptr) continue;
    const JsonNode* usual = GivenField(body, parameter->name.c_str());
    const bool replaces_it = key == "max_completion_tokens";  // OpenAI's newer name
    if (!replaces_it && usual != nullptr && PythonJson(*usual) != PythonJson(*body.Find(key))) {
      return InputError(Param(key) + " and " + Param(parameter->name) + " contradict each other");
    }
    KU_RETURN_IF_ERROR(ParseParameter(body, key.c_str(), *parameter, request));
  }
  if (request->num_samples > kMaxChoices) {
    return InputError(Param("n") + " must be at most " + std::to_string(kMaxChoices));
  }
  const bool is_search = request->beam_width > 1;
  if (is_search && request->num_samples > request->beam_width) {
    return InputError(Param("n") + " must be at most " + Param("beam_width"));
  }
  const JsonNode* penalty = GivenField(body, "length_penalty");
  if (!is_search && penalty != nullptr && penalty->AsDouble() != 1) {
    return InputError(Param("length_penalty") + " needs a " + Param("beam_width") + " above 1");
  }
  return OkStatus();
}

Status ParsePrompt(const JsonNode* prompt, ChatRequest* request) {
  if (prompt != nullptr && prompt->IsString()) {
    if (prompt->text.empty()) return InputError(Param("prompt") + " is empty");
    request->text = prompt->text;
    return OkStatus();
  }
  const bool is_list = prompt != nullptr && prompt->IsArray() && !prompt->items.empty();
  if (is_list && ParseIds(*prompt, &request->request.prompt)) return OkStatus();
  return InputError(Param("prompt") + " is neither a string nor a list of token ids");
}

// Raw prompts are used as they are, so fields that only a chat template uses are errors.
Status CheckNoMessagesFields(const JsonNode& body) {
  for (const std::string& key : body.keys) {
    const JsonNode* value = GivenField(body, key.c_str());
    const bool is_empty = value == nullptr || (value->IsArray() && value->items.empty());
    if (is_empty || !IsMessagesField(key)) continue;
    return InputError(Param(key) + " needs " + Param("messages") + ": a prompt is fed as it is");
  }
  return OkStatus();
}

// Parses vLLM's switch for the BOS token. Chat templates write their own BOS token.
Status ParseSpecialTokens(const JsonNode& body, ChatRequest* request) {
  const JsonNode* value = GivenField(body, "add_special_tokens");
  if (value == nullptr) return OkStatus();
  const std::string spelled = Param("add_special_tokens");
  if (!value->IsBool()) return InputError(spelled + " is not true or false");
  if (request->is_chat && value->boolean) {
    return Status(StatusCode::kUnavailable,
                  spelled + " is not supported: the chat template writes these tokens");
  }
  request->adds_bos = value->boolean;
  return OkStatus();
}

}  // namespace

const JsonNode* GivenField(const JsonNode& node, const char* key) {
  const JsonNode* value = node.Find(key);
  return value == nullptr || value->IsNull() ? nullptr : value;
}

bool GivesParameter(const JsonNode& body, std::string_view parameter) {
  return std::ranges::any_of(body.keys, [&](const std::string& key) {
    return (key == parameter || KuiperName(key) == parameter) && !body.Find(key)->IsNull();
  });
}

StatusOr<ChatRequest> ParseChatRequest(const JsonNode& body, bool is_chat,
                                       const Request& defaults) {
  ChatRequest request{.is_chat = is_chat, .request = defaults};
  KU_RETURN_IF_ERROR(CheckFields(body));
  KU_RETURN_IF_ERROR(ParseParameters(body, &request.request));
  KU_RETURN_IF_ERROR(ParseSpecialTokens(body, &request));
  if (is_chat) {
    KU_ASSIGN_OR_RETURN(request.messages, ParseMessages(body));
  } else {
    KU_RETURN_IF_ERROR(CheckNoMessagesFields(body));
    KU_RETURN_IF_ERROR(ParsePrompt(GivenField(body, "prompt"), &request));
  }
  return request;
}

}  // namespace kuiper
