#include "kuiper/chat/conversation.h"

#include <utility>

namespace kuiper {
namespace {

constexpr char kNoThinking[] = "<think>\n\n</think>\n\n";

Message TextMessage(Role role, const std::string& text) {
  Message message;
  message.role = role;
  message.text = text;
  return message;
}

bool UsesEmptyThinking(const TemplateOptions& options) {
  return options.family == ChatFamily::kQwen3 && !options.think.value_or(true);
}

}  // namespace

void Conversation::SetMessages(std::vector<Message> messages) {
  system_.reset();
  if (!messages.empty() && messages[0].role == Role::kSystem && messages[0].parts.empty()) {
    system_ = std::move(messages[0].text);
    messages.erase(messages.begin());
  }
  turns_ = std::move(messages);
}

std::vector<Message> Conversation::Messages() const {
  std::vector<Message> messages = turns_;
  if (system_.has_value()) messages.insert(messages.begin(), TextMessage(Role::kSystem, *system_));
  return messages;
}

void Conversation::AddUser(const std::string& text) {
  turns_.push_back(TextMessage(Role::kUser, text));
}

void Conversation::AddAnswer(const Completion& answer, const TemplateOptions& options,
                             bool exact_ids, const Tokenizer& tokenizer) {
  Message message = TextMessage(Role::kAssistant, answer.text);
  if (answer.has_reasoning) message.reasoning = answer.reasoning;
  // A stop string cut the text, so the ids say more than the text. Stripped reasoning moves the
  // answer to other positions: its keys and values are of no use, the template's text is.
  const bool same_text = answer.finish != FinishReason::kStopString;
  if (exact_ids && same_text && (!answer.has_reasoning || options.keep_thinking)) {
    if (options.keep_thinking && UsesEmptyThinking(options)) {
      message.ids = tokenizer.EncodeWithSpecials(kNoThinking);
    }
    const int end = answer.finish == FinishReason::kStop ? 1 : 0;
    message.ids.insert(message.ids.end(), answer.tokens.begin(), answer.tokens.end() - end);
  }
  turns_.push_back(std::move(message));
}

bool Conversation::DropLastAnswer() {
  if (turns_.empty() || turns_.back().role != Role::kAssistant) return false;
  turns_.pop_back();
  return true;
}

bool Conversation::DropLastTurn() {
  for (size_t i = turns_.size(); i-- > 0;) {
    if (!IsTurnStart(i)) continue;
    turns_.resize(i);
    return true;
  }
  return false;
}

bool Conversation::DropOldestTurn() {
  size_t begin = 0;
  while (begin < turns_.size() && !IsTurnStart(begin)) ++begin;
  size_t end = begin + 1;
  while (end < turns_.size() && !IsTurnStart(end)) ++end;
  if (end >= turns_.size()) return false;
  turns_.erase(turns_.begin() + begin, turns_.begin() + end);
  return true;
}

int Conversation::num_turns() const {
  int turns = 0;
  for (size_t i = 0; i < turns_.size(); ++i) turns += IsTurnStart(i) ? 1 : 0;
  return turns;
}

bool Conversation::waits_for_answer() const {
  return !turns_.empty() && turns_.back().role != Role::kAssistant;
}

StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                            const Conversation& conversation,
                                            const TemplateOptions& options) {
  std::vector<Message> messages = conversation.Messages();
  ChatOptions chat;
  chat.enable_thinking = options.think;
  chat.tools_json = options.tools_json;
  chat.keep_thinking_in_history = options.keep_thinking;
  if (conversation.system().has_value() && conversation.system()->empty()) {
    messages.erase(messages.begin());
    chat.default_system = false;
  }
  KU_ASSIGN_OR_RETURN(const std::vector<Segment> segments,
                      RenderSegments(options.family, messages, chat));
  return EncodeChat(tokenizer, segments);
}

StatusOr<Prompt> BuildPrompt(const Tokenizer& tokenizer, const TemplateOptions& options,
                             int max_context, bool drop_oldest, Conversation* conversation) {
  Prompt prompt;
  KU_ASSIGN_OR_RETURN(prompt.ids, EncodePrompt(tokenizer, *conversation, options));
  const int whole = static_cast<int>(prompt.ids.size());
  while (drop_oldest && static_cast<int>(prompt.ids.size()) >= max_context &&
         conversation->DropOldestTurn()) {
    ++prompt.dropped_turns;
    KU_ASSIGN_OR_RETURN(prompt.ids, EncodePrompt(tokenizer, *conversation, options));
  }
  prompt.dropped_tokens = whole - static_cast<int>(prompt.ids.size());
  return prompt;
}

std::vector<int32_t> EncodeRaw(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids = tokenizer.EncodeWithSpecials(text);
  if (tokenizer.bos().has_value()) ids.insert(ids.begin(), *tokenizer.bos());
  return ids;
}

bool EndsInsideThinking(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt) {
  const std::optional<int32_t> turn = tokenizer.TokenId("<|im_start|>");
  const std::optional<int32_t> open = tokenizer.TokenId("<think>");
  const std::optional<int32_t> close = tokenizer.TokenId("</think>");
  for (size_t i = prompt.size(); i-- > 0;) {
    if (prompt[i] == open) return true;
    if (prompt[i] == close || prompt[i] == turn) return false;
  }
  return false;
}

}  // namespace kuiper
