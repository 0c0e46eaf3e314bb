// Errors in OpenAI's format: an HTTP status and a matching error object in the body.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

// An error response: a Status plus the fields that only HTTP clients get.
struct ApiError {
  int status = 400;  // HTTP status
  std::string code;  // "queue_full"; "" is null
  std::string message;
  std::string param = {};     // the wrong field; "" is null
  int num_prompt_tokens = 0;  // only for context_length_exceeded, as is max_context
  int max_context = 0;
};

ApiError MakeError(int status, std::string code, std::string message);
// Converts the error of a refused request. kUnavailable (feature not supported) becomes the code
// "unsupported".
ApiError ErrorOf(const Status& status);
ApiError QueueFull();
ApiError PromptTooLong(const std::string& field, int num_tokens, int max_context);

// Returns the code for an unreadable request, such as "body_too_large".
const char* HttpErrorCode(int http_status);
// Returns the error type, such as "invalid_request_error".
const char* ErrorType(int http_status);
// {"error": {"message", "type", "param", "code"}}
nlohmann::ordered_json ErrorJson(const ApiError& error);
// ErrorJson, or its counterpart in another API format.
using ErrorFormat = nlohmann::ordered_json(const ApiError& error);

// Serializes to valid UTF-8 without line breaks.
std::string JsonText(const nlohmann::ordered_json& json);

}  // namespace kuiper
