#include "kuiper/server/api_error.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/chat/chat_response.h"

namespace kuiper {

using Json = nlohmann::ordered_json;

namespace {

// Returns the first parameter that the message names, or "".
std::string FirstParam(const Status& status) {
  const std::string mark = Param("");  // the opening and closing mark of a name
  const std::string text = status.message(Param);
  const size_t begin = text.find(mark[0]), end = text.find(mark[1], begin);
  return end == std::string::npos ? "" : text.substr(begin + 1, end - begin - 1);
}

}  // namespace

ApiError MakeError(int status, std::string code, std::string message) {
  ApiError error;
  error.status = status;
  error.code = std::move(code);
  error.message = std::move(message);
  return error;
}

ApiError ErrorOf(const Status& status) {
  ApiError error;
  error.message = status.message();
  error.param = FirstParam(status);
  switch (status.code()) {
    case StatusCode::kUnavailable:
      error.code = "unsupported";
      break;
    case StatusCode::kInput:
    case StatusCode::kInvalidArgument:
      error.code = "invalid_value";
      break;
    case StatusCode::kContextExceeded:
    case StatusCode::kResourceExhausted:
      error.code = ErrorName(status.code());
      break;
    default:
      error.status = 500;
      error.code = ErrorName(status.code());
  }
  return error;
}

ApiError QueueFull() {
  return MakeError(429, "queue_full", "the server's request queue is full; try again later");
}

ApiError PromptTooLong(const std::string& field, int num_tokens, int max_context) {
  ApiError error;
  error.code = ErrorName(StatusCode::kContextExceeded);
  error.message = "This model's maximum context length is " + std::to_string(max_context) +
                  " tokens, but the prompt has " + std::to_string(num_tokens) + " tokens";
  error.param = field;
  error.num_prompt_tokens = num_tokens;
  error.max_context = max_context;
  return error;
}

const char* HttpErrorCode(int http_status) {
  switch (http_status) {
    case 408:
      return "timeout";
    case 413:
      return "body_too_large";
    case 429:
      return "queue_full";
    case 431:
      return "header_too_large";
    case 503:
      return "too_many_connections";
    default:
      return "malformed_http";
  }
}

const char* ErrorType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "overloaded_error";
    default:
      return "invalid_request_error";
  }
}

Json ErrorJson(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json inner = {{"message", error.message},
                {"type", ErrorType(error.status)},
                {"param", or_null(error.param)},
                {"code", or_null(error.code)}};
  if (error.max_context > 0) {
    inner["n_prompt_tokens"] = error.num_prompt_tokens;
    inner["n_ctx"] = error.max_context;
  }
  return {{"error", inner}};
}

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kuiper
