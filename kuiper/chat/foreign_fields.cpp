#include "kuiper/chat/foreign_fields.h"

#include <algorithm>
#include <string>

#include "kuiper/base/check.h"
#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"

namespace kuiper {
namespace {

// Options of other servers, with the values that switch them off. docs/server.md has the same
// table.
constexpr char kNeutralValues[] = R"({
  "best_of": [1], "detokenize": [true], "do_sample": [true], "dry_multiplier": [0],
  "dynatemp_range": [0], "early_stopping": [false], "epsilon_cutoff": [0], "eta_cutoff": [0], "function_call": ["none", "auto"],
  "include_stop_str_in_output": [false], "min_keep": [0, 1], "mirostat": [0], "mirostat_mode": [0],
  "modalities": [["text"]], "no_repeat_ngram_size": [0], "no_stop_trim": [false], "num_beams": [1],
  "n_probs": [0], "repeat_last_n": [-1], "return_hidden_states": [false],
  "separate_reasoning": [true], "skip_special_tokens": [true], "smoothing_factor": [0],
  "spaces_between_special_tokens": [true], "stream_reasoning": [true], "t_max_predict_ms": [-1, 0],
  "tfs": [1], "tfs_z": [1], "top_a": [0], "top_n_sigma": [-1, 0], "truncation": ["disabled", "auto"],
  "typ_p": [1], "typical": [1], "typical_p": [1], "use_beam_search": [false],
  "verbosity": ["low", "medium", "high"], "xtc_probability": [0]
})";

// Hints, with the types of their values. Parameters of samplers that are switched off are hints.
constexpr char kHints[] = R"({
  "cache_control": "an object or a list", "cache_prompt": "true or false",
  "client_metadata": "an object", "context_management": "an object or a list",
  "dry_allowed_length": "a number", "dry_base": "a number", "dry_penalty_last_n": "a number",
  "dry_sequence_breakers": "a list", "dynatemp_exponent": "a number", "id_slot": "a number",
  "inference_geo": "a string", "max_tool_calls": "a number", "metadata": "an object",
  "mirostat_eta": "a number", "mirostat_tau": "a number", "n_discard": "a number",
  "n_keep": "a number", "prompt_cache_key": "a string", "prompt_cache_retention": "a string",
  "request_id": "a string", "rid": "a string", "safety_identifier": "a string",
  "service_tier": "a string", "slot_id": "a number", "store": "true or false", "user": "a string",
  "xtc_threshold": "a number"
})";

JsonNode Table(const char* text) {
  StatusOr<JsonNode> table = ParseJson(text, StatusCode::kInternal, "table of fields");
  KU_CHECK(table.ok());
  return std::move(*table);
}

bool IsSame(const JsonNode& a, const JsonNode& b) {
  if (a.IsNumber() && b.IsNumber()) return a.AsDouble() == b.AsDouble();
  return a.type == b.type && PythonJson(a) == PythonJson(b);
}

std::string_view TypeName(const JsonNode& value) {
  if (value.IsNumber()) return "a number";
  if (value.IsBool()) return "true or false";
  if (value.IsString()) return "a string";
  return value.IsArray() ? "a list" : "an object";
}

}  // namespace

bool IsNothing(const JsonNode& value) {
  if (value.IsNumber()) return value.AsDouble() == 0;
  return !value.boolean && value.text.empty() && value.items.empty();
}

Status CheckForeignField(std::string_view name, const JsonNode& value,
                         const std::vector<std::string_view>& known) {
  static const JsonNode neutral = Table(kNeutralValues), hints = Table(kHints);
  if (value.IsNull()) return OkStatus();
  if (const JsonNode* values = neutral.Find(name)) {
    const auto is_same = [&](const JsonNode& item) { return IsSame(item, value); };
    if (std::ranges::any_of(values->items, is_same)) return OkStatus();
    return Status(
        StatusCode::kUnavailable,
        Param(name) + " is not supported: leave it out, or write " + PythonJson(values->items[0]));
  }
  if (const JsonNode* types = hints.Find(name)) {
    if (types->text.find(TypeName(value)) != std::string::npos) return OkStatus();
    return InputError(Param(name) + " is not " + types->text);
  }
  const std::string meant = DidYouMean(name, known);
  if (meant.empty() && IsNothing(value)) return OkStatus();
  return InputError(Param(name) + " is not available" + meant);
}

}  // namespace kuiper
