#include "kuiper/chat/chat_response.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/base/hash.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

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
  choice["token_ids_fnv1a64"] = TokenHash(completion.tokens);
  choice["seed"] = completion.seed;
  return choice;
}

Json FlatChoice(const Completion& completion) {
  return {{"text", completion.text},
          {"reasoning", completion.reasoning},
          {"finish_reason", FinishReasonName(completion.finish)},
          {"token_ids_fnv1a64", TokenHash(completion.tokens)},
          {"seed", completion.seed}};
}

Json Usage(const std::vector<Completion>& choices) {
  const int prompt = choices.at(0).prompt_tokens;
  size_t generated = 0;
  for (const Completion& completion : choices) generated += completion.tokens.size();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated}};
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

const char* FinishName(FinishReason reason) {
  return reason == FinishReason::kLength || reason == FinishReason::kContext ? "length" : "stop";
}

std::string ChatResponse(bool is_chat, const std::string& id, const Responder& responder,
                         const std::vector<Completion>& choices) {
  Json list = Json::array();
  for (const Completion& completion : choices) {
    list.push_back(Choice(is_chat, list.size(), completion));
  }
  Json body = {{"id", (is_chat ? "chatcmpl-" : "cmpl-") + id},
               {"object", is_chat ? "chat.completion" : "text_completion"},
               {"created", 0},
               {"model", responder.model}};
  if (!responder.fingerprint.empty()) body["system_fingerprint"] = responder.fingerprint;
  body["choices"] = std::move(list);
  body["usage"] = Usage(choices);
  return Dump(body);
}

std::string FlatResponse(const Responder& responder, const std::vector<Completion>& choices) {
  Json answer = Json::object();
  if (choices.size() == 1) {
    answer = FlatChoice(choices[0]);
  } else {
    for (const Completion& completion : choices)
      answer["choices"].push_back(FlatChoice(completion));
  }
  answer["usage"] = Usage(choices);
  if (!responder.fingerprint.empty()) answer["system_fingerprint"] = responder.fingerprint;
  const std::string text = Dump(answer);
  return text.substr(1, text.size() - 2);
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
