#include "kuiper/chat/kept_reasoning.h"

#include <algorithm>

namespace kuiper {

void SetTextAlone(std::string_view text, Message* message) {
  message->parts.clear();
  message->text = text;
  message->reasoning.reset();
  JsonNode& source = message->source;
  for (size_t k = source.keys.size(); k-- > 0;) {
    if (source.keys[k] == "content") {
      source.items[k] = {.type = JsonNode::Type::kString, .text = std::string(text)};
    } else if (source.keys[k] == "reasoning_content") {
      source.keys.erase(source.keys.begin() + k);
      source.items.erase(source.items.begin() + k);
    }
  }
}

namespace {

std::string_view StripNewlines(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace

std::optional<std::string> AnswerWithReasoning(const Message& message, const TemplateFacts& facts) {
  const std::string text = TextOf(message);
  std::string_view answer = text, reasoning;
  if (message.reasoning.has_value()) {
    reasoning = *message.reasoning;
  } else {
    const ThinkingTags& tags = *facts.thinking;
    const size_t first_close = answer.find(tags.close);
    if (first_close == std::string_view::npos) return std::nullopt;
    reasoning = answer.substr(0, first_close);
    const size_t open = reasoning.rfind(tags.open);
    if (open != std::string_view::npos) reasoning.remove_prefix(open + tags.open.size());
    answer.remove_prefix(answer.rfind(tags.close) + tags.close.size());
  }
  answer.remove_prefix(std::min(answer.find_first_not_of('\n'), answer.size()));
  std::string whole = facts.before_reasoning;
  whole += StripNewlines(reasoning);
  whole += facts.after_reasoning;
  whole += answer;
  // The template begins a new line before a call of a tool if there is an answer, and here it sees
  // one.
  if (answer.empty() && !message.tool_calls.empty() && whole.ends_with('\n')) whole.pop_back();
  return whole;
}

size_t LastQuestion(const std::vector<Message>& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    // Qwen's template wraps results of tools, and some clients do so themselves.
    if (messages[i].role == Role::kUser && !TextOf(messages[i]).starts_with("<tool_response>")) {
      return i;
    }
  }
  return messages.size() - 1;
}

}  // namespace kuiper
