#include "kuiper/chat/chat_response.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

// OpenAI knows two reasons; the context is a limit of the length as well.
const char* FinishName(FinishReason reason) {
  return reason == FinishReason::kLength || reason == FinishReason::kContext ? "length" : "stop";
}

Json Choice(bool is_chat, size_t index, const Completion& completion) {
  Json choice = {{"index", index}};
  if (is_chat) {
    choice["message"] = {{"role", "assistant"}, {"content", completion.text}};
    if (completion.has_reasoning) choice["message"]["reasoning_content"] = completion.reasoning;
  } else {
    choice["text"] = completion.text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = FinishName(completion.finish);
  return choice;
}

}  // namespace

std::string ChatResponse(bool is_chat, const std::string& id, const std::string& model,
                         const std::vector<Completion>& choices) {
  const int prompt = choices.at(0).prompt_tokens;
  size_t generated = 0;
  Json list = Json::array();
  for (const Completion& completion : choices) {
    generated += completion.tokens.size();
    list.push_back(Choice(is_chat, list.size(), completion));
  }
  const Json usage = {{"prompt_tokens", prompt},
                      {"completion_tokens", generated},
                      {"total_tokens", prompt + generated}};
  const Json body = {{"id", (is_chat ? "chatcmpl-" : "cmpl-") + id},
                     {"object", is_chat ? "chat.completion" : "text_completion"},
                     {"created", 0},
                     {"model", model},
                     {"choices", std::move(list)},
                     {"usage", usage}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const char* ErrorName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kModel:
      return "model_error";
    case StatusCode::kTokenizer:
      return "tokenizer_error";
    case StatusCode::kInput:
      return "invalid_input";
    case StatusCode::kContextExceeded:
      return "context_length_exceeded";
    case StatusCode::kResourceExhausted:
      return "out_of_memory";
    case StatusCode::kUnavailable:
      return "device_unavailable";
    case StatusCode::kInternal:
      return "internal_error";
  }
  return "internal_error";
}

}  // namespace kuiper
