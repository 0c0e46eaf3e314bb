// One line of a batch file -> what to generate. The form is that of OpenAI's batches:
// {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}. Knows neither
// files nor engines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "demo/options.h"
#include "demo/prompt_source.h"
#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper::demo {

// Which request this is; numbers count from 1.
struct BatchLine {
  int64_t number = 0;
  std::optional<std::string> custom_id;
};

struct BatchRequest {
  bool chat = true;          // /v1/chat/completions, else /v1/completions
  PromptInput input;         // chat: the messages; else the text, unless there are `ids`
  std::vector<int32_t> ids;  // /v1/completions with a list of tokens
  Generation generation;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int num_choices = 1;  // "n"
  int beam_width = 1;
  float length_penalty = 1.f;
};

// What the answer is filed under; absent when the line has none.
std::optional<std::string> CustomIdOf(const JsonNode& line);

// `defaults` holds what a body leaves out. Every field must be known, and a request for something
// this program does not do is an error: an answer never silently differs from what was asked for.
StatusOr<BatchRequest> ParseBatchRequest(const JsonNode& line, const Options& defaults);

}  // namespace kuiper::demo
