#include "kuiper/server/api_request.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/server/json_fields.h"

namespace kuiper {
namespace {

constexpr int kMaxTopLogprobs = 20;
constexpr size_t kMaxPrompts = 128;
constexpr size_t kMaxStops = 16;
// Of texts of which each prompt of a body gets a copy.
constexpr size_t kMaxTextBytes = 4096;

Status NotDone(std::string_view field, const std::string& why) {
  return Status(StatusCode::kUnavailable, Param(field) + " is not supported: " + why);
}

// A field that is true, false, or absent.
Status TakeBool(JsonNode* body, const char* key, bool* value) {
  const JsonNode node = TakeField(body, key);
  if (node.IsNull()) return OkStatus();
  if (!node.IsBool()) return InputError(Param(key) + " is not true or false");
  *value = node.boolean;
  return OkStatus();
}

Status TakeInt(JsonNode* body, const char* key, int min, int max, std::optional<int>* value) {
  const JsonNode node = TakeField(body, key);
  if (node.IsNull()) return OkStatus();
  const std::optional<int64_t> number = node.AsInt();
  if (!number.has_value() || *number < min || *number > max) {
    return InputError(Param(key) + " is not a whole number from " + std::to_string(min) + " to " +
                      std::to_string(max));
  }
  *value = static_cast<int>(*number);
  return OkStatus();
}

// Fields of OpenAI's and of other servers' interfaces that need what is not there.
Status CheckUndone(JsonNode* body) {
  constexpr const char* kGrammar = "there is no constrained decoding";
  const std::pair<const char*, const char*> undone[] = {
      {"structured_outputs", kGrammar},
      {"guided_json", kGrammar},
      {"guided_regex", kGrammar},
      {"guided_choice", kGrammar},
      {"guided_grammar", kGrammar},
      {"functions", "use tools"},
      {"function_call", "use tool_choice"},
      {"audio", "answers are text"},
      {"prediction", "there is no speculative decoding"},
      {"web_search_options", "the server reaches no other host"},
      {"suffix", "answers go on behind the prompt"},
      {"best_of", "use n, or beam_width"},
  };
  for (const auto& [field, why] : undone) {
    const JsonNode value = TakeField(body, field);
    const bool asks_nothing = value.IsNull() ||
                              (value.items.empty() && (value.IsArray() || value.IsObject())) ||
                              (value.IsNumber() && value.text == "0");
    if (!asks_nothing) return NotDone(field, why);
  }
  const JsonNode format = TakeField(body, "response_format");
  if (format.IsNull()) return OkStatus();
  const JsonNode* type = format.Find("type");
  if (type == nullptr || !type->IsString())
    return InputError(Param("response_format") + " has no type");
  return type->text == "text" ? OkStatus() : NotDone("response_format", kGrammar);
}

// Switches of other servers, which routers write into each body: there is one way here.
Status CheckSwitches(JsonNode* body) {
  const std::pair<const char*, bool> switches[] = {
      {"continue_final_message", false}, {"no_stop_trim", false},
      {"return_hidden_states", false},   {"separate_reasoning", true},
      {"skip_special_tokens", true},     {"stream_reasoning", true},
  };
  for (const auto& [field, usual] : switches) {
    bool value = usual;
    KU_RETURN_IF_ERROR(TakeBool(body, field, &value));
    if (value != usual) {
      return NotDone(field, std::string("it is always ") + (usual ? "true" : "false"));
    }
  }
  return OkStatus();
}

// What is accepted and changes nothing.
void DropHarmless(JsonNode* body) {
  for (const char* field : {"user", "metadata", "store", "service_tier", "safety_identifier",
                            "prompt_cache_key", "verbosity", "modalities"}) {
    TakeField(body, field);
  }
}

Status TakeStream(JsonNode* body, ApiRequest* request) {
  KU_RETURN_IF_ERROR(TakeBool(body, "stream", &request->stream));
  JsonNode options = TakeField(body, "stream_options");
  if (options.IsNull()) return OkStatus();
  if (!options.IsObject()) return InputError(Param("stream_options") + " is not an object");
  if (!request->stream) return InputError(Param("stream_options") + " needs " + Param("stream"));
  KU_RETURN_IF_ERROR(TakeBool(&options, "include_usage", &request->include_usage));
  KU_RETURN_IF_ERROR(TakeBool(&options, "continuous_usage_stats", &request->continuous_usage));
  bool padding = false;  // against those who read the length of encrypted chunks
  KU_RETURN_IF_ERROR(TakeBool(&options, "include_obfuscation", &padding));
  if (options.keys.empty()) return OkStatus();
  return InputError(Param("stream_options." + options.keys[0]) + " is not available");
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
    return InputError(Param("prompt_logprobs") + " is of whole answers, not of a " +
                      Param("stream"));
  }
  return OkStatus();
}

// What the engine is asked for.
void SetLogprobs(const ApiRequest& request, Request* parameters) {
  // One alternative is looked for where the chosen token alone is wanted.
  if (request.wants_logprobs) parameters->num_logprobs = std::max(1, request.top_logprobs);
  parameters->num_prompt_logprobs = request.prompt_logprobs;
  if (request.echo && request.wants_logprobs) {
    parameters->num_prompt_logprobs =
        std::max(request.prompt_logprobs.value_or(0), request.top_logprobs);
  }
}

// A prompt that is echoed may be all that is wanted.
void TakeNoTokens(JsonNode* body, const ApiRequest& request, Request* parameters) {
  const JsonNode* most = GivenField(*body, "max_tokens");
  if (!request.echo || most == nullptr || most->AsInt() != 0) return;
  TakeField(body, "max_tokens");
  parameters->max_new_tokens = 0;
}

Status TakeTools(JsonNode* body, ApiRequest* request) {
  const JsonNode* tools = GivenField(*body, "tools");
  const JsonNode choice = TakeField(body, "tool_choice");
  KU_RETURN_IF_ERROR(TakeBool(body, "parallel_tool_calls", &request->parallel_tool_calls));
  const bool has_tools = tools != nullptr && !tools->items.empty();
  request->reads_tool_calls = has_tools;
  if (has_tools) request->string_parameters = StringParametersOf(*tools);
  if (choice.IsNull()) return OkStatus();
  if (choice.IsString() && choice.text == "none") {
    TakeField(body, "tools");
    request->reads_tool_calls = false;
    return OkStatus();
  }
  if (choice.IsString() && choice.text == "auto") return OkStatus();
  if ((choice.IsString() && choice.text == "required") || choice.IsObject()) {
    return NotDone("tool_choice", "there is no constrained decoding; \"auto\" and \"none\" are");
  }
  return InputError(Param("tool_choice") + " is neither \"auto\" nor \"none\"");
}

// Puts `value` into chat_template_kwargs, unless the body has it there.
void SetTemplateField(JsonNode* body, const char* key, JsonNode value) {
  JsonNode kwargs = TakeField(body, "chat_template_kwargs");
  if (kwargs.IsNull()) kwargs.type = JsonNode::Type::kObject;
  if (kwargs.IsObject() && kwargs.Find(key) == nullptr) {
    SetField(&kwargs, key, std::move(value));
  }
  SetField(body, "chat_template_kwargs", std::move(kwargs));
}

Status TakeThinking(JsonNode* body, ApiRequest* request) {
  KU_RETURN_IF_ERROR(TakeBool(body, "include_reasoning", &request->include_reasoning));
  JsonNode budget = TakeField(body, "thinking_token_budget");
  if (!budget.IsNull() && body->Find("reasoning_budget") == nullptr) {
    SetField(body, "reasoning_budget", std::move(budget));
  }
  JsonNode think = TakeField(body, "enable_thinking");
  if (!think.IsNull() && !think.IsBool()) {
    return InputError(Param("enable_thinking") + " is not true or false");
  }
  const JsonNode effort = TakeField(body, "reasoning_effort");
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
  if (!effort.IsNull() && std::ranges::find(kEfforts, effort.text) == std::end(kEfforts)) {
    return InputError(Param("reasoning_effort") +
                      " is not none, minimal, low, medium, high or xhigh");
  }
  if (effort.text == "none") {
    const JsonNode* kwargs = body->Find("chat_template_kwargs");
    const JsonNode* of_template = kwargs == nullptr ? nullptr : kwargs->Find("enable_thinking");
    if (think.boolean || (of_template != nullptr && of_template->boolean)) {
      return InputError(Param("reasoning_effort") + " is none and " + Param("enable_thinking") +
                        " true");
    }
    think.type = JsonNode::Type::kBool;
  }
  if (!think.IsNull()) SetTemplateField(body, "enable_thinking", std::move(think));
  return OkStatus();
}

// "developer" is what OpenAI calls the system now, and servers disagree how reasoning is called.
void UseUsualNames(JsonNode* body) {
  JsonNode messages = TakeField(body, "messages");
  for (JsonNode& message : messages.items) {
    for (size_t i = 0; i < message.keys.size(); ++i) {
      JsonNode& value = message.items[i];
      if (message.keys[i] == "role" && value.text == "developer") value.text = "system";
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

Status CheckText(const JsonNode& node, const char* field) {
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

Status CheckStops(const JsonNode& body) {
  const JsonNode* stop = GivenField(body, "stop");
  if (stop == nullptr) return OkStatus();
  if (stop->items.size() > kMaxStops) {
    return InputError(Param("stop") + " holds more than " + std::to_string(kMaxStops) + " strings");
  }
  for (const JsonNode& item : stop->items) KU_RETURN_IF_ERROR(CheckText(item, "stop"));
  return CheckText(*stop, "stop");
}

// The body's prompts, one each: a string, ids, or a list of either.
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
  DropHarmless(&body);
  KU_RETURN_IF_ERROR(CheckUndone(&body));
  KU_RETURN_IF_ERROR(CheckSwitches(&body));
  KU_RETURN_IF_ERROR(TakeStream(&body, &request));
  KU_RETURN_IF_ERROR(TakeLogprobs(&body, &request));
  KU_RETURN_IF_ERROR(TakeBool(&body, "return_token_ids", &request.return_token_ids));
  KU_RETURN_IF_ERROR(TakeSalt(&body, &parameters));
  if (is_chat) {
    if (GivenField(body, "messages") == nullptr)
      return InputError(Param("messages") + " is missing");
    if (GivenField(body, "prompt") != nullptr)
      return InputError(Param("prompt") + " is not available");
    KU_RETURN_IF_ERROR(TakeTools(&body, &request));
    KU_RETURN_IF_ERROR(TakeThinking(&body, &request));
    UseUsualNames(&body);
  } else {
    if (GivenField(body, "prompt") == nullptr) return InputError(Param("prompt") + " is missing");
    for (const char* field : {"messages", "tools"}) {
      if (GivenField(body, field) != nullptr) return InputError(Param(field) + " is not available");
    }
  }
  KU_RETURN_IF_ERROR(CheckStops(body));
  request.has_max_tokens = GivenField(body, "max_tokens") != nullptr ||
                           GivenField(body, "max_completion_tokens") != nullptr;
  TakeNoTokens(&body, request, &parameters);
  SetLogprobs(request, &parameters);
  KU_RETURN_IF_ERROR(ParsePrompts(std::move(body), parameters, &request));
  return request;
}

}  // namespace kuiper
