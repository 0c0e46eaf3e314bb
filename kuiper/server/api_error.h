// Errors as clients of OpenAI's interface see them: a status of HTTP that agrees with the object in
// the body.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

// What a server tells that no Status does.
struct ApiError {
  int status = 400;  // of HTTP
  std::string code;  // "queue_full"; "" is null
  std::string message;
  std::string param = {};     // the field that is wrong; "" is null
  int num_prompt_tokens = 0;  // code context_length_exceeded
  int max_context = 0;
};

ApiError MakeError(int status, std::string code, std::string message);
// Of a request that could not be taken. kUnavailable: what was asked for is not done here, code
// "unsupported".
ApiError ErrorOf(const Status& status);
ApiError QueueFull();
ApiError PromptTooLong(const std::string& field, int num_tokens, int max_context);

// What could not be read as a request: "body_too_large", "malformed_http"...
const char* HttpErrorCode(int http_status);
// "invalid_request_error", "authentication_error"...
const char* ErrorType(int http_status);
// {"error": {"message", "type", "param", "code"}}
nlohmann::ordered_json ErrorJson(const ApiError& error);
// That, or what another interface has in its place.
using ErrorForm = nlohmann::ordered_json(const ApiError& error);

// A text of JSON that is valid UTF-8, without line breaks.
std::string JsonText(const nlohmann::ordered_json& json);

}  // namespace kuiper
