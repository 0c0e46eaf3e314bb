// Parses bodies of /v1/chat/completions and /v1/completions, with the server features that batches
// lack: streams, log probabilities, tools, several prompts. Unsupported features are errors, and so
// are unknown fields that ask for something. Independent of HTTP.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/chat/chat_request.h"
#include "kuiper/chat/tool_calls.h"

namespace kuiper {

struct ApiRequest {
  bool is_chat = true;
  // A chat has one; completions have one per prompt, with equal parameters.
  std::vector<ChatRequest> prompts;
  std::string model;  // "" = any
  bool has_max_tokens = false;
  bool stream = false;
  bool include_usage = false;     // streams: send the usage in a last chunk
  bool continuous_usage = false;  // streams: send the usage in every chunk
  bool echo = false;              // completions: begin the answer with the prompt
  bool wants_logprobs = false;
  int top_logprobs = 0;
  std::optional<int> prompt_logprobs = {};  // alternatives per prompt token, in vLLM's format
  bool return_token_ids = false;
  bool include_reasoning = true;
  std::vector<std::string> dropped_tools = {};  // types of the dropped non-function tools
  bool reads_tool_calls = false;                // the body has tools that the model may call
  bool parallel_tool_calls = true;
  StringParameters string_parameters = {};  // string parameters of the tools

  const Request& parameters() const { return prompts.at(0).request; }
};

// `defaults` holds the values of absent fields. kInput names fields by Param; kUnavailable for
// known but unsupported features.
StatusOr<ApiRequest> ParseApiRequest(JsonNode body, bool is_chat, const Request& defaults);

}  // namespace kuiper
