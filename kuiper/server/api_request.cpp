#include "kuiper/server/api_request.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/foreign_fields.h"
#include "kuiper/chat/other_names.h"
#include "kuiper/server/body_fields.h"
#include "kuiper/server/json_fields.h"
#include "kuiper/server/thinking_fields.h"
#include "kuiper/server/tool_fields.h"

namespace kuiper {
namespace {

constexpr int kMaxTopLogprobs = 20;
constexpr size_t kMaxPrompts = 128;
constexpr size_t kMaxStops = 16;
// Maximum bytes of texts that are copied for each prompt of a body.
constexpr size_t kMaxTextBytes = 4096;
// OpenAI's default max_tokens of completions, which have no end of turn to stop at.
constexpr int kCompletionTokens = 16;

// Refuses fields of OpenAI's and other servers' APIs that ask for unsupported features.
Status CheckUnsupported(JsonNode* body) {
  constexpr const char* kGrammar = "there is no constrained decoding";
  const std::pair<const char*, const char*> unsupported[] = {
      {"structured_outputs", kGrammar},
      {"guided_json", kGrammar},
      {"guided_regex", kGrammar},
      {"guided_choice", kGrammar},
      {"guided_grammar", kGrammar},
      {"json_schema", kGrammar},
      {"grammar", kGrammar},
      {"regex", kGrammar},
      {"ebnf", kGrammar},
      {"functions", "use tools"},
      {"audio", "answers are text"},
      {"prediction", "there is no speculative decoding"},
      {"web_search_options", "the server reaches no other host"},
      {"suffix", "text is generated only after the prompt"},
  };
  for (const auto& [field, why] : unsupported) {
    if (!IsNothing(TakeField(body, field))) return UnsupportedField(field, why);
  }
  const JsonNode format = TakeField(body, "response_format");
  if (IsNothing(format)) return OkStatus();
  const JsonNode* type = format.Find("type");
  if (type == nullptr || !type->IsString())
    return InputError(Param("response_format") + " has no type");
  return type->text == "text" ? OkStatus() : UnsupportedField("response_format", kGrammar);
}

Status TakeStream(JsonNode* body, ApiRequest* request) {
  KU_RETURN_IF_ERROR(TakeBool(body, "stream", &request->stream));
  JsonNode options = TakeField(body, "stream_options");
  if (options.IsNull()) return OkStatus();
  if (!options.IsObject()) return InputError(Param("stream_options") + " is not an object");
  KU_RETURN_IF_ERROR(TakeBool(&options, "include_usage", &request->include_usage));
  KU_RETURN_IF_ERROR(TakeBool(&options, "continuous_usage_stats", &request->continuous_usage));
  bool padding = false;  // pads chunks to hide their length from eavesdroppers; ignored
  KU_RETURN_IF_ERROR(TakeBool(&options, "include_obfuscation", &padding));
  if (!request->stream && (request->include_usage || request->continuous_usage)) {
    return InputError(Param("stream_options") + " needs " + Param("stream"));
  }
  return CheckRest("stream_options", options);
}

Status TakeLogprobs(JsonNode* body, ApiRequest* request) {
  std::optional<int> top;
  if (request->is_chat) {
    KU_RETURN_IF_ERROR(TakeBool(body, "logprobs", &request->wants_logprobs));
    KU_RETURN_IF_ERROR(TakeInt(body, "top_logprobs", 0, kMaxTopLogprobs, &top));
    if (top.value_or(0) > 0 && !request->wants_logprobs) {
      return InputError(Param("top_logprobs") + " needs " + Param("logprobs"));
    }
  } else {
    KU_RETURN_IF_ERROR(TakeInt(body, "logprobs", 0, kMaxTopLogprobs, &top));
    request->wants_logprobs = top.has_value();
    KU_RETURN_IF_ERROR(TakeBool(body, "echo", &request->echo));
  }
  request->top_logprobs = top.value_or(0);
  KU_RETURN_IF_ERROR(
      TakeInt(body, "prompt_logprobs", 0, kMaxTopLogprobs, &request->prompt_logprobs));
  if (request->prompt_logprobs.has_value() && request->stream) {
    return InputError(Param("prompt_logprobs") + " is not available with " + Param("stream"));
  }
  return OkStatus();
}

// Sets the log probabilities that the engine shall compute.
void SetLogprobs(const ApiRequest& request, Request* parameters) {
  // The engine needs at least one alternative even if only the chosen token is wanted.
  if (request.wants_logprobs) parameters->num_logprobs = std::max(1, request.top_logprobs);
  parameters->num_prompt_logprobs = request.prompt_logprobs;
  if (request.echo && request.wants_logprobs) {
    parameters->num_prompt_logprobs =
        std::max(request.prompt_logprobs.value_or(0), request.top_logprobs);
  }
}

// With `echo`, max_tokens may be 0: the client wants only the prompt.
void TakeNoTokens(JsonNode* body, const ApiRequest& request, Request* parameters) {
  if (!request.echo) return;
  const std::vector<std::string> names = body->keys;
  for (const std::string& name : names) {
    if (KuiperName(name) != "max_tokens" || body->Find(name)->AsInt() != 0) continue;
    TakeField(body, name);
    parameters->max_new_tokens = 0;
  }
}

Status TakeTools(JsonNode* body, ApiRequest* request) {
  KU_RETURN_IF_ERROR(TakeBool(body, "parallel_tool_calls", &request->parallel_tool_calls));
  KU_RETURN_IF_ERROR(ChooseTools(body, &request->dropped_tools));
  const JsonNode* tools = GivenField(*body, "tools");
  request->reads_tool_calls = tools != nullptr;
  if (tools != nullptr) request->string_parameters = StringParametersOf(*tools);
  return OkStatus();
}

// Converts a content part of /v1/responses, or a string, to a chat part.
void UseUsualPart(JsonNode* part) {
  if (part->IsString()) *part = TextPart(part->text);
  const std::string type = TextOfField(*part, "type");
  for (size_t i = 0; i < part->keys.size(); ++i) {
    if (part->keys[i] == "type") {
      const bool is_text = type == "input_text" || type == "output_text" || type == "refusal";
      if (is_text) part->items[i].text = "text";
      if (type == "input_image") part->items[i].text = "image_url";
    } else if (part->keys[i] == "refusal" && type == "refusal") {
      part->keys[i] = "text";
    }
  }
}

// Renames variants: OpenAI now calls the system role "developer", and servers disagree on the name
// of the reasoning field.
void UseUsualNames(JsonNode* body) {
  JsonNode messages = TakeField(body, "messages");
  // DeepSeek and Mistral mark a last message that the answer continues with "prefix".
  if (!messages.items.empty() && TakeField(&messages.items.back(), "prefix").boolean) {
    TakeField(body, "continue_final_message");
    SetField(body, "continue_final_message", BoolNode(true));
  }
  for (JsonNode& message : messages.items) {
    for (size_t i = 0; i < message.keys.size(); ++i) {
      JsonNode& value = message.items[i];
      if (message.keys[i] == "role" && value.text == "developer") value.text = "system";
      if (message.keys[i] != "content") continue;
      for (JsonNode& part : value.items) UseUsualPart(&part);
    }
    // A refusal is the message's only content.
    if (GivenField(message, "content") == nullptr && !TextOfField(message, "refusal").empty()) {
      TakeField(&message, "content");
      SetField(&message, "content", TakeField(&message, "refusal"));
    }
    for (const char* key : {"refusal", "annotations", "audio", "function_call"}) {
      const JsonNode* value = message.Find(key);
      if (value != nullptr && value->items.empty()) TakeField(&message, key);
    }
    JsonNode reasoning = TakeField(&message, "reasoning");
    if (reasoning.IsNull() || GivenField(message, "reasoning_content") != nullptr) continue;
    TakeField(&message, "reasoning_content");
    SetField(&message, "reasoning_content", std::move(reasoning));
  }
  SetField(body, "messages", std::move(messages));
}

Status CheckText(const JsonNode& node, const std::string& field) {
  if (node.text.size() <= kMaxTextBytes) return OkStatus();
  return InputError(Param(field) + " is longer than " + std::to_string(kMaxTextBytes) + " bytes");
}

Status TakeSalt(JsonNode* body, Request* parameters) {
  const JsonNode salt = TakeField(body, "cache_salt");
  if (!salt.IsNull() && !salt.IsString())
    return InputError(Param("cache_salt") + " is not a string");
  KU_RETURN_IF_ERROR(CheckText(salt, "cache_salt"));
  parameters->cache_salt = salt.text;
  return OkStatus();
}

// Checks the stop strings under all names of the parameter.
Status CheckStops(const JsonNode& body) {
  for (size_t i = 0; i < body.keys.size(); ++i) {
    const std::string& name = body.keys[i];
    const JsonNode& stop = body.items[i];
    if (KuiperName(name) != "stop") continue;
    if (stop.items.size() > kMaxStops) {
      return InputError(Param(name) + " holds more than " + std::to_string(kMaxStops) + " strings");
    }
    for (const JsonNode& item : stop.items) KU_RETURN_IF_ERROR(CheckText(item, name));
    KU_RETURN_IF_ERROR(CheckText(stop, name));
  }
  return OkStatus();
}

// Takes the body's prompts: a string, a list of ids, or a list of either.
StatusOr<std::vector<JsonNode>> TakePrompts(JsonNode* body) {
  JsonNode prompt = TakeField(body, "prompt");
  const bool is_list = prompt.IsArray() && !prompt.items.empty() && !prompt.items[0].IsNumber();
  std::vector<JsonNode> prompts;
  if (is_list) {
    if (prompt.items.size() > kMaxPrompts) {
      return InputError(Param("prompt") + " holds more than " + std::to_string(kMaxPrompts) +
                        " prompts");
    }
    prompts = std::move(prompt.items);
  } else {
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Status ParsePrompts(JsonNode body, const Request& defaults, ApiRequest* request) {
  if (request->is_chat) {
    KU_ASSIGN_OR_RETURN(ChatRequest chat, ParseChatRequest(body, true, defaults));
    request->prompts.push_back(std::move(chat));
    return OkStatus();
  }
  KU_ASSIGN_OR_RETURN(std::vector<JsonNode> prompts, TakePrompts(&body));
  for (JsonNode& prompt : prompts) {
    JsonNode one = body;
    SetField(&one, "prompt", std::move(prompt));
    KU_ASSIGN_OR_RETURN(ChatRequest parsed, ParseChatRequest(one, false, defaults));
    request->prompts.push_back(std::move(parsed));
  }
  return OkStatus();
}

}  // namespace

StatusOr<ApiRequest> ParseApiRequest(JsonNode body, bool is_chat, const Request& defaults) {
  if (!body.IsObject()) return InputError("the body is not an object");
  ApiRequest request;
  request.is_chat = is_chat;
  Request parameters = defaults;
  const JsonNode model = TakeField(&body, "model");
  if (!model.IsNull() && !model.IsString()) return InputError(Param("model") + " is not a string");
  request.model = model.text;
  KU_RETURN_IF_ERROR(TakeStream(&body, &request));
  KU_RETURN_IF_ERROR(TakeLogprobs(&body, &request));
  KU_RETURN_IF_ERROR(TakeBool(&body, "return_token_ids", &request.return_token_ids));
  KU_RETURN_IF_ERROR(TakeSalt(&body, &parameters));
  if (is_chat) {
    if (GivenField(body, "messages") == nullptr)
      return InputError(Param("messages") + " is missing");
    KU_RETURN_IF_ERROR(TakeUnavailable(&body, {"prompt"}));
    KU_RETURN_IF_ERROR(TakeTools(&body, &request));
    KU_RETURN_IF_ERROR(TakeThinking(&body, &request.include_reasoning));
    UseUsualNames(&body);
  } else {
    if (GivenField(body, "prompt") == nullptr) return InputError(Param("prompt") + " is missing");
    KU_RETURN_IF_ERROR(TakeUnavailable(&body, {"messages", "tools"}));
  }
  KU_RETURN_IF_ERROR(CheckUnsupported(&body));
  KU_RETURN_IF_ERROR(CheckStops(body));
  request.has_max_tokens = !is_chat || GivesParameter(body, "max_tokens");
  if (!is_chat) parameters.max_new_tokens = kCompletionTokens;
  TakeNoTokens(&body, request, &parameters);
  SetLogprobs(request, &parameters);
  KU_RETURN_IF_ERROR(ParsePrompts(std::move(body), parameters, &request));
  return request;
}

}  // namespace kuiper
