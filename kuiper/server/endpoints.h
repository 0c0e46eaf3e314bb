// The small answers of a server: functions of the model and a body. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kuiper/server/served_model.h"

namespace kuiper {

// A function of a body that is an object, as those below.
using Computation = StatusOr<nlohmann::ordered_json> (*)(const ServedModel& model, JsonNode body);
// What it gives for the text of a body.
StatusOr<nlohmann::ordered_json> ComputeBody(Computation compute, const ServedModel& model,
                                             const std::string& text);

nlohmann::ordered_json ModelJson(const ServedModel& model, const std::string& name);
nlohmann::ordered_json ModelsJson(const ServedModel& model);
nlohmann::ordered_json PropsJson(const ServedModel& model);
// In vLLM's form: chat template, control tokens and longest prompt, for clients that tokenize.
nlohmann::ordered_json TokenizerInfoJson(const ServedModel& model);

// {"content" or "prompt": text, or "messages": ...} -> {"tokens", "count", "max_model_len"}. The
// token that begins a sequence is there with "add_special" (llama.cpp's, with "content") and unless
// "add_special_tokens" is false (vLLM's, with "prompt"). "with_pieces" makes each token an object
// of its id and piece, "return_token_strs" adds a list of texts.
StatusOr<nlohmann::ordered_json> TokenizeBody(const ServedModel& model, JsonNode body);
// {"tokens": [...]} -> {"content", "prompt"}
StatusOr<nlohmann::ordered_json> DetokenizeBody(const ServedModel& model, JsonNode body);
// {"messages": ...} -> {"prompt"}
StatusOr<nlohmann::ordered_json> ApplyTemplateBody(const ServedModel& model, JsonNode body);

// A body of Anthropic's form, which may leave max_tokens out -> {"input_tokens"}
StatusOr<nlohmann::ordered_json> CountTokensBody(const ServedModel& model, JsonNode body);
// A body of OpenAI's responses -> {"object", "input_tokens"}
StatusOr<nlohmann::ordered_json> CountInputTokensBody(const ServedModel& model, JsonNode body);

}  // namespace kuiper
