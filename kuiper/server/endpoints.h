// Responses that are pure functions of the model and a body. Callable from any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kuiper/server/served_model.h"

namespace kuiper {

// The functions below that take a body, which must be an object.
using Computation = StatusOr<nlohmann::ordered_json> (*)(const ServedModel& model, JsonNode body);
// Parses the text of a body and applies `compute`.
StatusOr<nlohmann::ordered_json> ComputeBody(Computation compute, const ServedModel& model,
                                             const std::string& text);

nlohmann::ordered_json ModelJson(const ServedModel& model, const std::string& name);
nlohmann::ordered_json ModelsJson(const ServedModel& model);
nlohmann::ordered_json PropsJson(const ServedModel& model);
// Returns the chat template, control tokens and longest prompt in vLLM's format, for clients that
// tokenize.
nlohmann::ordered_json TokenizerInfoJson(const ServedModel& model);

// {"content" or "prompt": text, or "messages": ...} -> {"tokens", "count", "max_model_len"}.
// "content" (llama.cpp's) gets a BOS token if "add_special" is true; "prompt" (vLLM's) unless
// "add_special_tokens" is false. "with_pieces" makes each token an object of its id and piece.
// "return_token_strs" adds a list of texts.
StatusOr<nlohmann::ordered_json> TokenizeBody(const ServedModel& model, JsonNode body);
// {"tokens": [...]} -> {"content", "prompt"}
StatusOr<nlohmann::ordered_json> DetokenizeBody(const ServedModel& model, JsonNode body);
// {"messages": ...} -> {"prompt"}
StatusOr<nlohmann::ordered_json> ApplyTemplateBody(const ServedModel& model, JsonNode body);

// A body in Anthropic's format, max_tokens being optional -> {"input_tokens"}
StatusOr<nlohmann::ordered_json> CountTokensBody(const ServedModel& model, JsonNode body);
// A body of OpenAI's responses -> {"object", "input_tokens"}
StatusOr<nlohmann::ordered_json> CountInputTokensBody(const ServedModel& model, JsonNode body);

}  // namespace kuiper
