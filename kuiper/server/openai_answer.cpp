#include "kuiper/server/openai_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/server/token_logprobs.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
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
                    const char* finish, const AnswerParts& parts);
  std::string Echo(int choice, const AnswerParts& parts);
  const Request& RequestOf(size_t choice) const {
    return prepared_.requests.at(choice / api_.parameters().num_samples);
  }
  // A chat has one prompt; completions have one per choice.
  void PromptIds(Json* body, Json* choice, size_t number) const {
    (api_.is_chat ? *body : *choice)["prompt_token_ids"] = RequestOf(number).prompt;
  }
  void SetReasoning(const std::string& reasoning, Json* message) const;
  Json ChatLogprobs(std::span<const TokenPart> tokens) const {
    return {{"content", LogprobEntries(tokenizer_, tokens, api_.top_logprobs)},
            {"refusal", nullptr}};
  }
  Json CompletionLogprobs(size_t number, const AnswerParts::Choice& choice) const;
  // `generated`: generated tokens of all choices.
  Json Usage(const AnswerParts& parts, int generated) const;
  Json Timings(const AnswerParts& parts) const;
  static Json Call(const CallPart& call, std::optional<size_t> index);

  const ApiRequest& api_;
  const PreparedRequest& prepared_;
  const AnswerTitle title_;
  const Tokenizer& tokenizer_;
  const ReasoningField field_;
  std::vector<size_t> num_calls_;    // tool calls sent so far, per choice
  std::vector<LogprobLists> lists_;  // per choice; only for completions
  std::vector<bool> echoed_, told_prompt_;
  bool has_begun_ = false;
};

Json OpenAiWriter::Head(const char* object) const {
  return {{"id", (api_.is_chat ? "chatcmpl-" : "cmpl-") + title_.id},
          {"object", object},
          {"created", title_.created},
          {"model", title_.model},
          {"system_fingerprint", OrNull(title_.fingerprint)}};
}

std::string OpenAiWriter::Chunk(int choice, Json delta, const std::vector<TokenPart>& tokens,
                                const char* finish, const AnswerParts& parts) {
  Json chunk = Head(api_.is_chat ? "chat.completion.chunk" : "text_completion");
  Json item = {{"index", choice}};
  if (api_.is_chat) {
    item["delta"] = std::move(delta);
  } else {
    item["text"] = delta.value("content", "");
  }
  item["logprobs"] = nullptr;
  if (api_.wants_logprobs && !tokens.empty()) {
    item["logprobs"] = api_.is_chat ? ChatLogprobs(tokens) : lists_.at(choice).Next(tokens);
  }
  item["finish_reason"] = finish == nullptr ? Json() : Json(finish);
  if (api_.return_token_ids && echoed_.at(choice)) {
    item["token_ids"] = Json::array();
    for (const TokenPart& token : tokens) item["token_ids"].push_back(token.token);
  }
  if (api_.return_token_ids && !told_prompt_.at(choice)) {
    PromptIds(&chunk, &item, choice);
    told_prompt_[choice] = true;
  }
  chunk["choices"] = Json::array({std::move(item)});
  if (api_.continuous_usage) {
    // The first chunks precede the first token.
    chunk["usage"] = Usage(parts, has_begun_ ? parts.num_generated_tokens() : 0);
  } else if (api_.include_usage) {
    chunk["usage"] = nullptr;
  }
  return ServerEvent(chunk);
}

std::string OpenAiWriter::Begin(const AnswerParts& parts) {
  std::string text;
  const size_t num_choices = parts.choices().size();
  num_calls_.resize(num_choices);
  lists_.assign(num_choices, LogprobLists(tokenizer_, api_.top_logprobs));
  echoed_.assign(num_choices, prepared_.echoes.empty());
  told_prompt_.assign(num_choices, false);
  for (size_t i = 0; i < num_choices; ++i) {
    const int choice = static_cast<int>(i);
    if (api_.is_chat) {
      text += Chunk(choice, {{"role", "assistant"}, {"content", ""}}, {}, nullptr, parts);
    } else if (!api_.wants_logprobs && !echoed_[i]) {
      text += Echo(choice, parts);
    }
  }
  has_begun_ = true;
  return text;
}

// Writes the prompt, with its log probabilities if wanted.
std::string OpenAiWriter::Echo(int choice, const AnswerParts& parts) {
  const Request& request = RequestOf(choice);
  const std::string& text = prepared_.echoes.at(choice / api_.parameters().num_samples);
  std::vector<TokenPart> tokens;
  if (api_.wants_logprobs) {
    tokens = PromptParts(request.prompt, parts.choices()[choice].prompt_logprobs);
  }
  std::string chunk = Chunk(choice, {{"content", text}}, tokens, nullptr, parts);
  echoed_[choice] = true;
  return chunk;
}

std::string OpenAiWriter::OnDelta(const AnswerDelta& delta, const AnswerParts& parts) {
  std::string text;
  if (!echoed_.at(delta.choice)) text += Echo(delta.choice, parts);
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
    chunk["usage"] = Usage(parts, parts.num_generated_tokens());
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
    item["logprobs"] = nullptr;
    if (api_.wants_logprobs) {
      item["logprobs"] =
          api_.is_chat ? ChatLogprobs(choice.tokens) : CompletionLogprobs(list.size(), choice);
    }
    if (api_.prompt_logprobs.has_value()) {
      (api_.is_chat ? body : item)["prompt_logprobs"] = PromptLogprobsJson(
          tokenizer_, RequestOf(list.size()), choice.prompt_logprobs, *api_.prompt_logprobs);
    }
    item["finish_reason"] = choice.finish();
    if (choice.completion.has_value()) item["seed"] = choice.completion->seed;
    if (api_.return_token_ids) {
      item["token_ids"] = choice.completion->tokens;
      PromptIds(&body, &item, list.size());
    }
    list.push_back(std::move(item));
  }
  body["choices"] = std::move(list);
  body["usage"] = Usage(parts, parts.num_generated_tokens());
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

// Returns the log probabilities of a choice; with `echo`, those of the prompt come first.
Json OpenAiWriter::CompletionLogprobs(size_t number, const AnswerParts::Choice& choice) const {
  std::vector<TokenPart> tokens;
  if (api_.echo) tokens = PromptParts(RequestOf(number).prompt, choice.prompt_logprobs);
  tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
  return LogprobLists(tokenizer_, api_.top_logprobs).Next(tokens);
}

Json OpenAiWriter::Usage(const AnswerParts& parts, int generated) const {
  const int prompt = parts.num_prompt_tokens();
  Json details = {{"cached_tokens", parts.num_cached_tokens()}};
  if (parts.num_image_tokens() > 0) details["image_tokens"] = parts.num_image_tokens();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", std::move(details)},
          {"completion_tokens_details", {{"reasoning_tokens", parts.num_reasoning_tokens()}}}};
}

// Returns the timings of the first choice, in the format of other servers.
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
