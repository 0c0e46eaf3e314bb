#include "kuiper/server/thinking_fields.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/chat/chat_request.h"
#include "kuiper/chat/foreign_fields.h"
#include "kuiper/server/body_fields.h"
#include "kuiper/server/json_fields.h"

namespace kuiper {
namespace {

// Sets `key` in chat_template_kwargs unless the body sets it there.
void SetTemplateField(JsonNode* body, const char* key, JsonNode value) {
  JsonNode kwargs = TakeField(body, "chat_template_kwargs");
  if (kwargs.IsNull()) kwargs.type = JsonNode::Type::kObject;
  if (kwargs.IsObject() && GivenField(kwargs, key) == nullptr) {
    TakeField(&kwargs, key);
    SetField(&kwargs, key, std::move(value));
  }
  SetField(body, "chat_template_kwargs", std::move(kwargs));
}

// Whether the model shall think. Several fields may set it; they must agree.
class ThinkingChoice {
 public:
  Status Set(const std::string& field, bool think) {
    if (think_.value_or(think) != think) {
      return InputError(Param(field_) + " and " + Param(field) + " contradict each other");
    }
    think_ = think;
    field_ = field;
    return OkStatus();
  }
  const std::optional<bool>& think() const { return think_; }

 private:
  std::optional<bool> think_;
  std::string field_;
};

// `name`: the field that contains the budget.
Status SetBudget(const std::string& name, JsonNode budget, JsonNode* body) {
  if (budget.IsNull()) return OkStatus();
  const JsonNode* usual = GivenField(*body, "reasoning_budget");
  if (usual != nullptr && PythonJson(*usual) != PythonJson(budget)) {
    return InputError(Param(name) + " and " + Param("reasoning_budget") + " contradict each other");
  }
  TakeField(body, "reasoning_budget");
  SetField(body, "reasoning_budget", std::move(budget));
  return OkStatus();
}

// Checks that `effort` is a known effort level or null.
Status CheckEffort(const char* field, const JsonNode& effort) {
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                           "high", "xhigh",   "max"};
  if (effort.IsNull() || std::ranges::find(kEfforts, effort.text) != std::end(kEfforts)) {
    return OkStatus();
  }
  return InputError(Param(field) + " is not none, minimal, low, medium, high, xhigh or max");
}

Status TakeEffort(const char* field, const JsonNode& effort, ThinkingChoice* choice) {
  KU_RETURN_IF_ERROR(CheckEffort(field, effort));
  return effort.text == "none" ? choice->Set(field, false) : OkStatus();
}

// {"type": "enabled", "disabled", "adaptive" or "auto", "budget_tokens": number}, as Anthropic,
// GLM, DeepSeek and Kimi have it. The latter two types leave the choice to the model.
Status TakeThinkingObject(JsonNode* body, ThinkingChoice* choice) {
  JsonNode thinking = TakeField(body, "thinking");
  if (thinking.IsBool()) return choice->Set("thinking", thinking.boolean);
  if (IsNothing(thinking)) return OkStatus();
  const std::string type = TextOfField(thinking, "type");
  const bool is_open = type == "adaptive" || type == "auto";
  if (!is_open && type != "enabled" && type != "disabled") {
    return InputError(Param("thinking.type") + " is not enabled, disabled, adaptive or auto");
  }
  if (!is_open) KU_RETURN_IF_ERROR(choice->Set("thinking", type == "enabled"));
  // The other fields only control how the reasoning is shown; ignore them.
  return SetBudget("thinking.budget_tokens", TakeField(&thinking, "budget_tokens"), body);
}

// Ollama's field: true, false, or an effort.
Status TakeThink(JsonNode* body, ThinkingChoice* choice) {
  const JsonNode think = TakeField(body, "think");
  if (think.IsBool()) return choice->Set("think", think.boolean);
  return TakeEffort("think", think, choice);
}

// OpenAI's and OpenRouter's object.
Status TakeReasoningObject(JsonNode* body, bool* shows_reasoning, ThinkingChoice* choice) {
  JsonNode reasoning = TakeField(body, "reasoning");
  if (reasoning.IsBool()) return choice->Set("reasoning", reasoning.boolean);
  if (IsNothing(reasoning)) return OkStatus();
  if (!reasoning.IsObject()) return InputError(Param("reasoning") + " is not an object");
  KU_RETURN_IF_ERROR(TakeEffort("reasoning.effort", TakeField(&reasoning, "effort"), choice));
  if (GivenField(reasoning, "enabled") != nullptr) {
    bool enabled = true;
    KU_RETURN_IF_ERROR(TakeBool(&reasoning, "enabled", &enabled));
    KU_RETURN_IF_ERROR(choice->Set("reasoning.enabled", enabled));
  }
  bool exclude = false;
  KU_RETURN_IF_ERROR(TakeBool(&reasoning, "exclude", &exclude));
  if (exclude) *shows_reasoning = false;
  KU_RETURN_IF_ERROR(SetBudget("reasoning.max_tokens", TakeField(&reasoning, "max_tokens"), body));
  for (const char* summary : {"summary", "generate_summary"}) TakeField(&reasoning, summary);
  return CheckRest("reasoning", reasoning);
}

// Anthropic's object. Its format becomes response_format.
Status TakeOutputConfig(JsonNode* body, ThinkingChoice* choice) {
  JsonNode output = TakeField(body, "output_config");
  if (output.IsNull()) return OkStatus();
  if (!output.IsObject()) return InputError(Param("output_config") + " is not an object");
  if (JsonNode format = TakeField(&output, "format"); !format.IsNull()) {
    SetField(body, "response_format", std::move(format));
  }
  KU_RETURN_IF_ERROR(TakeEffort("output_config.effort", TakeField(&output, "effort"), choice));
  return CheckRest("output_config", output);
}

}  // namespace

Status TakeThinking(JsonNode* body, bool* shows_reasoning) {
  KU_RETURN_IF_ERROR(TakeBool(body, "include_reasoning", shows_reasoning));
  KU_RETURN_IF_ERROR(
      SetBudget("thinking_token_budget", TakeField(body, "thinking_token_budget"), body));
  ThinkingChoice choice;
  const JsonNode* kwargs = body->Find("chat_template_kwargs");
  const JsonNode* of_template = kwargs == nullptr ? nullptr : kwargs->Find("enable_thinking");
  if (of_template != nullptr && of_template->IsBool()) {
    KU_RETURN_IF_ERROR(choice.Set("chat_template_kwargs.enable_thinking", of_template->boolean));
  }
  const JsonNode think = TakeField(body, "enable_thinking");
  if (!think.IsNull() && !think.IsBool()) {
    return InputError(Param("enable_thinking") + " is not true or false");
  }
  if (think.IsBool()) KU_RETURN_IF_ERROR(choice.Set("enable_thinking", think.boolean));
  KU_RETURN_IF_ERROR(TakeEffort("reasoning_effort", TakeField(body, "reasoning_effort"), &choice));
  KU_RETURN_IF_ERROR(TakeThink(body, &choice));
  KU_RETURN_IF_ERROR(TakeThinkingObject(body, &choice));
  KU_RETURN_IF_ERROR(TakeReasoningObject(body, shows_reasoning, &choice));
  KU_RETURN_IF_ERROR(TakeOutputConfig(body, &choice));
  if (choice.think().has_value()) {
    SetTemplateField(body, "enable_thinking", BoolNode(*choice.think()));
  }
  return OkStatus();
}

}  // namespace kuiper
