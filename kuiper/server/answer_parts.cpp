#include "kuiper/server/answer_parts.h"

#include <utility>

#include "kuiper/chat/chat_response.h"

namespace kuiper {

const char* AnswerParts::Choice::finish() const {
  const FinishReason reason = completion.has_value() ? completion->finish : FinishReason::kNone;
  // A truncated answer may contain complete calls but lack later ones: keep its finish reason.
  return FinishName(reason) == std::string("stop") && !calls.empty() ? "tool_calls"
                                                                     : FinishName(reason);
}

AnswerParts::AnswerParts(const PreparedRequest& prepared, const std::optional<ToolCallFormat>& form,
                         const std::string& id)
    : prepared_(prepared), id_(id) {
  const size_t num_samples = prepared.api.parameters().num_samples;
  choices_.resize(prepared.requests.size() * num_samples);
  num_running_ = static_cast<int>(choices_.size());
  for (size_t i = 0; i < prepared.echoes.size() * num_samples; ++i) {
    choices_[i].text = prepared.echoes[i / num_samples];
  }
  if (!prepared.api.reads_tool_calls || !form.has_value()) return;
  for (Choice& choice : choices_) choice.parser.emplace(*form, prepared.api.string_parameters);
}

void AnswerParts::AddCalls(std::vector<ParsedToolCall> calls, Choice* choice,
                           AnswerDelta* delta) const {
  for (ParsedToolCall& call : calls) {
    if (!prepared_.api.parallel_tool_calls && !choice->calls.empty()) return;
    const size_t number = choice - choices_.data();
    CallPart part{
        "call_" + id_ + "_" + std::to_string(number) + "_" + std::to_string(choice->calls.size()),
        std::move(call)};
    choice->calls.push_back(part);
    delta->calls.push_back(std::move(part));
  }
}

AnswerDelta AnswerParts::Take(AnswerEvent event) {
  Choice& choice = choices_.at(event.choice);
  AnswerDelta delta;
  delta.choice = event.choice;
  if (prepared_.api.include_reasoning) delta.reasoning = std::move(event.reasoning);
  if (choice.parser.has_value()) {
    ToolCallParser::Delta parsed = choice.parser->Push(event.text);
    if (event.completion.has_value()) {
      ToolCallParser::Delta rest = choice.parser->Finish();
      parsed.text += rest.text;
      for (ParsedToolCall& call : rest.calls) parsed.calls.push_back(std::move(call));
    }
    delta.text = std::move(parsed.text);
    AddCalls(std::move(parsed.calls), &choice, &delta);
  } else {
    delta.text = std::move(event.text);
  }
  if (!event.prompt_logprobs.empty()) choice.prompt_logprobs = std::move(event.prompt_logprobs);
  if (event.token.has_value()) {
    ++num_generated_;
    if (event.logprobs.has_value() || prepared_.api.return_token_ids) {
      delta.tokens.push_back({*event.token, std::move(event.logprobs)});
    }
  }
  const bool thinks = prepared_.api.is_chat && prepared_.requests[0].split_thinking;
  if (thinks && choice.text.empty() && !delta.text.empty()) {
    choice.text_begin = choice.tokens.size();
  }
  choice.text += delta.text;
  choice.reasoning += delta.reasoning;
  choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  if (event.completion.has_value()) {
    choice.completion = std::move(event.completion);
    delta.is_last = true;
    --num_running_;
  }
  return delta;
}

Status AnswerParts::error() const {
  for (const Choice& choice : choices_) {
    if (!choice.completion.has_value()) continue;
    const Completion& completion = *choice.completion;
    if (completion.finish == FinishReason::kError) return completion.error;
  }
  return OkStatus();
}

int AnswerParts::num_prompt_tokens() const {
  int count = 0;
  for (const Request& request : prepared_.requests)
    count += static_cast<int>(request.prompt.size());
  return count;
}

int AnswerParts::num_cached_tokens() const {
  // The samples of a request share one prompt: count it once.
  const size_t num_samples = prepared_.api.parameters().num_samples;
  int count = 0;
  for (size_t i = 0; i < choices_.size(); i += num_samples) {
    if (choices_[i].completion.has_value()) count += choices_[i].completion->cached_tokens;
  }
  return count;
}

int AnswerParts::num_reasoning_tokens() const {
  int count = 0;
  for (const Choice& choice : choices_) {
    if (choice.completion.has_value()) count += choice.completion->reasoning_tokens;
  }
  return count;
}

}  // namespace kuiper
