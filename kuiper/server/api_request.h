// The bodies of /v1/chat/completions and /v1/completions with all that a server does beyond a
// batch: streams, log probabilities, tools, several prompts. What is not done is an error that says
// so, and so is a field that nobody knows and that asks for something. Knows no HTTP.
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
  // The same parameters in each; a chat has one, completions one per prompt.
  std::vector<ChatRequest> prompts;
  std::string model;  // "": any
  bool has_max_tokens = false;
  bool stream = false;
  bool include_usage = false;     // of a stream: a last chunk with the usage
  bool continuous_usage = false;  // and in every chunk
  bool echo = false;              // completions: the answer begins with the prompt
  bool wants_logprobs = false;
  int top_logprobs = 0;
  std::optional<int> prompt_logprobs = {};  // alternatives of the prompt's tokens, in vLLM's form
  bool return_token_ids = false;
  bool include_reasoning = true;
  std::vector<std::string> dropped_tools = {};  // types of tools that are no functions
  bool reads_tool_calls = false;                // there are tools, and the model may call them
  bool parallel_tool_calls = true;
  StringParameters string_parameters = {};  // of the tools

  const Request& parameters() const { return prompts.at(0).request; }
};

// `defaults` holds what a body leaves out. kInput names fields by Param; kUnavailable for what is
// known and not done.
StatusOr<ApiRequest> ParseApiRequest(JsonNode body, bool is_chat, const Request& defaults);

}  // namespace kuiper
