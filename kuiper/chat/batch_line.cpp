#include "kuiper/chat/batch_line.h"

#include <nlohmann/json.hpp>

#include "kuiper/base/errors.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kChatUrl[] = "/v1/chat/completions";
constexpr char kCompletionsUrl[] = "/v1/completions";

std::string BodyField(std::string_view name) {
  return "body." + std::string(name);
}

// True for a chat. The body decides (messages or prompt); a URL must agree with it.
StatusOr<bool> IsChat(const JsonNode& line, const JsonNode& body, Speller spell) {
  const JsonNode* method = GivenField(line, "method");
  if (method != nullptr && !(method->IsString() && method->text == "POST")) {
    return InputError("method must be \"POST\"");
  }
  const JsonNode* url = GivenField(line, "url");
  const auto bad_url = [] {
    return InputError(std::string("url must be \"") + kChatUrl + "\" for messages and \"" +
                      kCompletionsUrl + "\" for a prompt");
  };
  if (url != nullptr && url->text != kChatUrl && url->text != kCompletionsUrl) return bad_url();
  const bool is_chat = GivenField(body, "messages") != nullptr;
  if (is_chat == (GivenField(body, "prompt") != nullptr)) {
    return InputError("there must be either " + spell("messages") + " or " + spell("prompt") +
                      (is_chat ? ", not both" : ""));
  }
  if (url != nullptr && url->text != (is_chat ? kChatUrl : kCompletionsUrl)) return bad_url();
  return is_chat;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Returns the request of a flat line: all fields except custom_id.
JsonNode FlatBody(const JsonNode& json) {
  JsonNode body{.type = JsonNode::Type::kObject};
  for (size_t i = 0; i < json.keys.size(); ++i) {
    if (json.keys[i] == "custom_id") continue;
    body.keys.push_back(json.keys[i]);
    body.items.push_back(json.items[i]);
  }
  return body;
}

StatusOr<ChatRequest> ParseBody(const JsonNode& json, const JsonNode& body, Speller spell,
                                const Request& defaults) {
  KU_ASSIGN_OR_RETURN(const bool is_chat, IsChat(json, body, spell));
  StatusOr<ChatRequest> request = ParseChatRequest(body, is_chat, defaults);
  if (!request.ok()) return InputError(request.status().message(spell));
  return request;
}

}  // namespace

BatchLine::BatchLine(int64_t n, const JsonNode& json) : number(n) {
  const JsonNode* id = json.Find("custom_id");
  if (id != nullptr && id->IsString()) custom_id = id->text;
  is_flat = json.Find("body") == nullptr &&
            (json.Find("messages") != nullptr || json.Find("prompt") != nullptr);
}

StatusOr<ChatRequest> ParseBatchLine(const BatchLine& line, const JsonNode& json,
                                     const Request& defaults) {
  if (!json.IsObject()) return InputError("the line is not an object");
  if (!line.custom_id.has_value()) {
    return InputError(GivenField(json, "custom_id") == nullptr ? "the line has no custom_id"
                                                               : "custom_id is not a string");
  }
  if (line.is_flat) return ParseBody({}, FlatBody(json), BareName, defaults);
  const JsonNode* body = json.Find("body");
  if (body == nullptr || !body->IsObject())
    return InputError("the line has neither body nor messages nor prompt");
  return ParseBody(json, *body, BodyField, defaults);
}

std::string BatchAnswerHead(const BatchLine& line) {
  const std::string id =
      line.is_flat ? "" : "\"id\":\"batch_req_" + std::to_string(line.number) + "\",";
  return "{" + id + "\"custom_id\":" +
         Dump(line.custom_id.has_value() ? Json(*line.custom_id) : Json(nullptr)) + ",";
}

std::string BatchAnswerLine(const BatchLine& line, bool is_chat, const Responder& responder,
                            const std::vector<Completion>& choices) {
  const std::string number = std::to_string(line.number);
  const std::string answer =
      line.is_flat ? FlatResponse(responder, choices)
                   : "\"response\":{\"status_code\":200,\"request_id\":\"req_" + number +
                         "\",\"body\":" + ChatResponse(is_chat, number, responder, choices) + "}";
  return BatchAnswerHead(line) + answer + ",\"error\":null}\n";
}

std::string BatchErrorLine(const BatchLine& line, const Status& status, Speller spell) {
  const Json error = {{"code", ErrorName(status.code())}, {"message", status.message(spell)}};
  return BatchAnswerHead(line) + (line.is_flat ? "" : "\"response\":null,") +
         "\"error\":" + Dump(error) + "}\n";
}

std::string FingerprintOf(const JsonNode& answer) {
  const JsonNode* node = &answer;
  for (const char* key : {"response", "body"}) {
    if (const JsonNode* inner = node->Find(key)) node = inner;
  }
  const JsonNode* fingerprint = node->Find("system_fingerprint");
  return fingerprint != nullptr && fingerprint->IsString() ? fingerprint->text : "";
}

}  // namespace kuiper
