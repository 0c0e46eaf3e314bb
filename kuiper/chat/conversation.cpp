#include "kuiper/chat/conversation.h"

#include <algorithm>
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

HistoryLimits RoomForAnswers(int max_context, int max_new_tokens, bool goes_on) {
  const int room =
      max_new_tokens >= max_context ? max_context / 4 : std::min(max_new_tokens, max_context / 2);
  HistoryLimits limits;
  limits.max_prompt = max_context - room;
  limits.kept_prompt = goes_on ? limits.max_prompt / 2 : limits.max_prompt;
  return limits;
}

StatusOr<Prompt> BuildPrompt(const Tokenizer& tokenizer, const TemplateOptions& options,
                             const HistoryLimits& limits, Conversation* conversation) {
  const int most = std::max(0, conversation->num_turns() - 1);  // may leave
  const auto without = [&](int turns) {
    Conversation rest = *conversation;
    while (turns-- > 0) rest.DropOldestTurn();
    return rest;
  };
  const auto encode = [&](int dropped) {
    return EncodePrompt(tokenizer, without(dropped), options);
  };
  Prompt prompt;
  KU_ASSIGN_OR_RETURN(prompt.ids, encode(0));
  const size_t whole = prompt.ids.size();
  if (most > limits.max_turns) {
    prompt.surplus_turns = prompt.dropped_turns = most - limits.kept_turns;
    KU_ASSIGN_OR_RETURN(prompt.ids, encode(prompt.dropped_turns));
  }
  if (static_cast<int>(prompt.ids.size()) > limits.max_prompt) {
    // The fewest turns that suffice: the more of them leave, the shorter is the prompt.
    int few = prompt.dropped_turns, many = most;
    while (few < many) {
      const int middle = few + (many - few) / 2;
      KU_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, encode(middle));
      if (static_cast<int>(ids.size()) <= limits.kept_prompt) {
        many = middle;
      } else {
        few = middle + 1;
      }
    }
    prompt.dropped_turns = few;
    KU_ASSIGN_OR_RETURN(prompt.ids, encode(few));
  }
  *conversation = without(prompt.dropped_turns);
  prompt.dropped_tokens = static_cast<int>(whole - prompt.ids.size());
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
