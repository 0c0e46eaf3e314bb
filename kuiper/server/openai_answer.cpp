#include "kuiper/server/openai_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

// The bytes of a token as numbers, which its text may not show.
Json BytesOf(std::string_view bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

class OpenAiWriter : public AnswerWriter {
 public:
  OpenAiWriter(const PreparedRequest& prepared, AnswerTitle title, const Tokenizer& tokenizer,
               ReasoningField field)
      : api_(prepared.api),
        prepared_(prepared),
        title_(std::move(title)),
        tokenizer_(tokenizer),
        field_(field) {}

  std::string Begin(const AnswerParts& parts) override;
  std::string OnDelta(const AnswerDelta& delta, const AnswerParts& parts) override;
  std::string End(const AnswerParts& parts) override;
  std::string Failed(const ApiError& error) override {
    return ServerEvent(ErrorJson(error)) + "data: [DONE]\n\n";
  }
  Json Whole(const AnswerParts& parts) const override;

 private:
  Json Head(const char* object) const;
  std::string Chunk(int choice, Json delta, const std::vector<TokenPart>& tokens,
                    const char* finish, const AnswerParts& parts,
                    const std::vector<int32_t>* prompt = nullptr) const;
  void SetReasoning(const std::string& reasoning, Json* message) const;
  Json Logprobs(const std::vector<TokenPart>& tokens) const;
  Json Usage(const AnswerParts& parts) const;
  Json Timings(const AnswerParts& parts) const;
  static Json Call(const CallPart& call, std::optional<size_t> index);

  const ApiRequest& api_;
  const PreparedRequest& prepared_;
  const AnswerTitle title_;
  const Tokenizer& tokenizer_;
  const ReasoningField field_;
  std::vector<size_t> num_calls_;  // told so far, of each choice
};

Json OpenAiWriter::Head(const char* object) const {
  return {{"id", (api_.is_chat ? "chatcmpl-" : "cmpl-") + title_.id},
          {"object", object},
          {"created", title_.created},
          {"model", title_.model},
          {"system_fingerprint", OrNull(title_.fingerprint)}};
}

std::string OpenAiWriter::Chunk(int choice, Json delta, const std::vector<TokenPart>& tokens,
                                const char* finish, const AnswerParts& parts,
                                const std::vector<int32_t>* prompt) const {
  Json chunk = Head(api_.is_chat ? "chat.completion.chunk" : "text_completion");
  Json item = {{"index", choice}};
  if (api_.is_chat) {
    item["delta"] = std::move(delta);
  } else {
    item["text"] = delta.value("content", "");
  }
  item["logprobs"] = api_.wants_logprobs && !tokens.empty() ? Logprobs(tokens) : Json();
  item["finish_reason"] = finish == nullptr ? Json() : Json(finish);
  if (api_.return_token_ids) {
    item["token_ids"] = Json::array();
    for (const TokenPart& token : tokens) item["token_ids"].push_back(token.token);
    if (prompt != nullptr) item["prompt_token_ids"] = *prompt;
  }
  chunk["choices"] = Json::array({std::move(item)});
  if (api_.continuous_usage) {
    chunk["usage"] = Usage(parts);
  } else if (api_.include_usage) {
    chunk["usage"] = nullptr;
  }
  return ServerEvent(chunk);
}

std::string OpenAiWriter::Begin(const AnswerParts& parts) {
  std::string text;
  num_calls_.resize(parts.choices().size());
  for (size_t i = 0; i < parts.choices().size(); ++i) {
    const int choice = static_cast<int>(i);
    const size_t request = i / api_.parameters().num_samples;
    const std::vector<int32_t>& prompt = prepared_.requests.at(request).prompt;
    if (api_.is_chat) {
      text += Chunk(choice, {{"role", "assistant"}, {"content", ""}}, {}, nullptr, parts, &prompt);
    } else if (!prepared_.echoes.empty() || api_.return_token_ids) {
      const std::string echo = prepared_.echoes.empty() ? "" : prepared_.echoes.at(request);
      text += Chunk(choice, {{"content", echo}}, {}, nullptr, parts, &prompt);
    }
  }
  return text;
}

std::string OpenAiWriter::OnDelta(const AnswerDelta& delta, const AnswerParts& parts) {
  std::string text;
  Json message = Json::object();
  if (!delta.reasoning.empty()) SetReasoning(delta.reasoning, &message);
  if (!delta.text.empty()) message["content"] = delta.text;
  if (!message.empty() || !delta.tokens.empty()) {
    text += Chunk(delta.choice, message, delta.tokens, nullptr, parts);
  }
  for (const CallPart& call : delta.calls) {
    const size_t index = num_calls_.at(delta.choice)++;
    Json begin = Call({call.id, {call.call.name, ""}}, index);
    Json arguments = {{"index", index}, {"function", {{"arguments", call.call.arguments}}}};
    for (Json* part : {&begin, &arguments}) {
      text += Chunk(delta.choice, {{"tool_calls", Json::array({std::move(*part)})}}, {}, nullptr,
                    parts);
    }
  }
  if (delta.is_last) {
    text += Chunk(delta.choice, Json::object(), {}, parts.choices()[delta.choice].finish(), parts);
  }
  return text;
}

std::string OpenAiWriter::End(const AnswerParts& parts) {
  std::string text;
  if (api_.include_usage) {
    Json chunk = Head(api_.is_chat ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = Json::array();
    chunk["usage"] = Usage(parts);
    chunk["timings"] = Timings(parts);
    text = ServerEvent(chunk);
  }
  return text + "data: [DONE]\n\n";
}

Json OpenAiWriter::Whole(const AnswerParts& parts) const {
  Json body = Head(api_.is_chat ? "chat.completion" : "text_completion");
  Json list = Json::array();
  for (const AnswerParts::Choice& choice : parts.choices()) {
    Json item = {{"index", list.size()}};
    if (api_.is_chat) {
      Json message = {{"role", "assistant"}};
      message["content"] =
          choice.text.empty() && !choice.calls.empty() ? Json() : Json(choice.text);
      message["refusal"] = nullptr;
      if (!choice.reasoning.empty()) SetReasoning(choice.reasoning, &message);
      for (const CallPart& call : choice.calls) {
        message["tool_calls"].push_back(Call(call, std::nullopt));
      }
      item["message"] = std::move(message);
    } else {
      item["text"] = choice.text;
    }
    item["logprobs"] = api_.wants_logprobs ? Logprobs(choice.tokens) : Json();
    item["finish_reason"] = choice.finish();
    if (choice.completion.has_value()) item["seed"] = choice.completion->seed;
    if (api_.return_token_ids) {
      item["token_ids"] = choice.completion->tokens;
      const size_t request = list.size() / api_.parameters().num_samples;
      item["prompt_token_ids"] = prepared_.requests.at(request).prompt;
    }
    list.push_back(std::move(item));
  }
  body["choices"] = std::move(list);
  body["usage"] = Usage(parts);
  body["timings"] = Timings(parts);
  return body;
}

void OpenAiWriter::SetReasoning(const std::string& reasoning, Json* message) const {
  if (field_ != ReasoningField::kReasoning) (*message)["reasoning_content"] = reasoning;
  if (field_ != ReasoningField::kReasoningContent) (*message)["reasoning"] = reasoning;
}

Json OpenAiWriter::Call(const CallPart& call, std::optional<size_t> index) {
  Json json = Json::object();
  if (index.has_value()) json["index"] = *index;
  json["id"] = call.id;
  json["type"] = "function";
  json["function"] = {{"name", call.call.name}, {"arguments", call.call.arguments}};
  return json;
}

// Chats have a list of objects, completions an object of lists.
Json OpenAiWriter::Logprobs(const std::vector<TokenPart>& tokens) const {
  const auto entry = [&](int32_t id, float logprob) {
    const std::string_view bytes = tokenizer_.Bytes(id);
    return Json{{"token", bytes}, {"logprob", logprob}, {"bytes", BytesOf(bytes)}};
  };
  const auto top_of = [&](const TokenPart& token) {
    const auto& top = token.logprobs.top;
    return std::vector(top.begin(), top.begin() + std::min<size_t>(top.size(), api_.top_logprobs));
  };
  if (api_.is_chat) {
    Json content = Json::array();
    for (const TokenPart& token : tokens) {
      Json item = entry(token.token, token.logprobs.chosen);
      item["top_logprobs"] = Json::array();
      for (const auto& [id, logprob] : top_of(token)) {
        item["top_logprobs"].push_back(entry(id, logprob));
      }
      content.push_back(std::move(item));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  Json lists = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()}};
  for (const TokenPart& token : tokens) {
    lists["tokens"].push_back(tokenizer_.Bytes(token.token));
    lists["token_logprobs"].push_back(token.logprobs.chosen);
    Json top = Json::object();
    for (const auto& [id, logprob] : top_of(token)) {
      top[std::string(tokenizer_.Bytes(id))] = logprob;
    }
    lists["top_logprobs"].push_back(std::move(top));
  }
  return lists;
}

Json OpenAiWriter::Usage(const AnswerParts& parts) const {
  const int prompt = parts.num_prompt_tokens(), generated = parts.num_generated_tokens();
  Json details = {{"cached_tokens", parts.num_cached_tokens()}};
  if (parts.num_image_tokens() > 0) details["image_tokens"] = parts.num_image_tokens();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", std::move(details)},
          {"completion_tokens_details", {{"reasoning_tokens", parts.num_reasoning_tokens()}}}};
}

// As other servers tell them; of the first answer.
Json OpenAiWriter::Timings(const AnswerParts& parts) const {
  const std::optional<Completion>& completion = parts.choices().at(0).completion;
  if (!completion.has_value()) return {};
  const Completion& done = *completion;
  const auto per_second = [](double count, double ms) { return ms > 0 ? 1e3 * count / ms : 0; };
  const int computed = done.prompt_tokens - done.cached_tokens;
  const size_t decoded = done.tokens.empty() ? 0 : done.tokens.size() - 1;
  return {{"cache_n", done.cached_tokens},
          {"prompt_n", computed},
          {"queue_ms", done.queue_ms},
          {"prompt_ms", done.prefill_ms},
          {"prompt_per_second", per_second(computed, done.prefill_ms)},
          {"predicted_n", done.tokens.size()},
          {"predicted_ms", done.decode_ms},
          {"predicted_per_second", per_second(static_cast<double>(decoded), done.decode_ms)}};
}

}  // namespace

std::string ServerEvent(const Json& data) {
  return "data: " + JsonText(data) + "\n\n";
}

std::string ServerEvent(const std::string& name, const Json& data) {
  return "event: " + name + "\n" + ServerEvent(data);
}

std::unique_ptr<AnswerWriter> MakeOpenAiWriter(const PreparedRequest& prepared, AnswerTitle title,
                                               const Tokenizer& tokenizer,
                                               ReasoningField reasoning_field) {
  return std::make_unique<OpenAiWriter>(prepared, std::move(title), tokenizer, reasoning_field);
}

}  // namespace kuiper
