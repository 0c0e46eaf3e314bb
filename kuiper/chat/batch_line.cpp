#include "kuiper/chat/batch_line.h"

#include <nlohmann/json.hpp>

#include "kuiper/chat/chat_response.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kChatUrl[] = "/v1/chat/completions";
constexpr char kCompletionsUrl[] = "/v1/completions";

Status Bad(const std::string& message) {
  return Status(StatusCode::kInput, message);
}

std::string BodyField(std::string_view name) {
  return "body." + std::string(name);
}

// The URL says what the body is; without one the body does.
StatusOr<bool> IsChat(const JsonNode& line, const JsonNode& body) {
  const JsonNode* method = GivenField(line, "method");
  if (method != nullptr && !(method->IsString() && method->text == "POST")) {
    return Bad("method must be \"POST\"");
  }
  const bool is_chat = GivenField(body, "messages") != nullptr;
  if (is_chat == (GivenField(body, "prompt") != nullptr)) {
    return Bad("body must have either messages or prompt");
  }
  const JsonNode* url = GivenField(line, "url");
  if (url == nullptr || (url->IsString() && url->text == (is_chat ? kChatUrl : kCompletionsUrl))) {
    return is_chat;
  }
  return Bad(std::string("url must be \"") + kChatUrl + "\" for messages and \"" + kCompletionsUrl +
             "\" for a prompt");
}

std::string Line(const BatchLine& line, const std::string& response, const Json& error) {
  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const Json custom_id = line.custom_id.has_value() ? Json(*line.custom_id) : Json(nullptr);
  return "{\"id\":\"batch_req_" + std::to_string(line.number) +
         "\",\"custom_id\":" + dump(custom_id) + ",\"response\":" + response +
         ",\"error\":" + dump(error) + "}\n";
}

}  // namespace

std::optional<std::string> CustomIdOf(const JsonNode& line) {
  const JsonNode* id = line.Find("custom_id");
  return id != nullptr && id->IsString() ? std::optional(id->text) : std::nullopt;
}

StatusOr<ChatRequest> ParseBatchLine(const JsonNode& line, const Request& defaults) {
  if (!line.IsObject()) return Bad("the line is not an object");
  if (!CustomIdOf(line).has_value()) return Bad("the line has no custom_id");
  const JsonNode* body = line.Find("body");
  if (body == nullptr || !body->IsObject()) return Bad("the line has no body");
  KU_ASSIGN_OR_RETURN(const bool is_chat, IsChat(line, *body));
  StatusOr<ChatRequest> request = ParseChatRequest(*body, is_chat, defaults);
  if (!request.ok()) return Bad(request.status().message(BodyField));
  return request;
}

std::string BatchAnswerLine(const BatchLine& line, const std::string& body) {
  return Line(line,
              "{\"status_code\":200,\"request_id\":\"req_" + std::to_string(line.number) +
                  "\",\"body\":" + body + "}",
              nullptr);
}

std::string BatchErrorLine(const BatchLine& line, const Status& status, Speller spell) {
  return Line(line, "null",
              {{"code", ErrorName(status.code())}, {"message", status.message(spell)}});
}

}  // namespace kuiper
