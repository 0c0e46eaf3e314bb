#include "demo/conversation.h"

#include <algorithm>
#include <utility>

namespace kuiper::demo {
namespace {

constexpr char kEmptySystem[] = "<|im_start|>system\n<|im_end|>\n";
constexpr char kNoThinking[] = "<think>\n\n</think>\n\n";

bool Occurs(const std::vector<Message>& messages, const std::string& text) {
  return std::any_of(messages.begin(), messages.end(), [&](const Message& message) {
    return message.text.find(text) != std::string::npos ||
           message.reasoning.value_or("").find(text) != std::string::npos;
  });
}

// A text that stands for the i-th reused answer while the template is rendered.
std::string Mark(const std::string& unique, size_t i) {
  return unique + std::to_string(i) + ";";
}

// Splits the segment that holds `mark`; what is before it moves to `before`, what is after it
// stays.
bool SplitAt(const std::string& mark, std::vector<Segment>* segments,
             std::vector<Segment>* before) {
  for (size_t i = 0; i < segments->size(); ++i) {
    const Segment& segment = (*segments)[i];
    const size_t at = segment.is_control ? std::string::npos : segment.text.find(mark);
    if (at == std::string::npos) continue;
    Segment rest{segment.text.substr(at + mark.size()), false};
    before->assign(segments->begin(), segments->begin() + i);
    before->push_back({segment.text.substr(0, at), false});
    segments->erase(segments->begin(), segments->begin() + i);
    segments->front() = std::move(rest);
    return true;
  }
  return false;
}

void Append(const std::vector<int32_t>& ids, std::vector<int32_t>* out) {
  out->insert(out->end(), ids.begin(), ids.end());
}

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
  entries_.clear();
  system_.reset();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i == 0 && messages[0].role == Role::kSystem && messages[0].parts.empty()) {
      system_ = messages[0].text;
    } else {
      entries_.push_back({std::move(messages[i]), {}});
    }
  }
}

std::vector<Message> Conversation::Messages() const {
  std::vector<Message> messages;
  if (system_.has_value()) messages.push_back(TextMessage(Role::kSystem, *system_));
  for (const Entry& entry : entries_) messages.push_back(entry.message);
  return messages;
}

void Conversation::AddUser(const std::string& text) {
  entries_.push_back({TextMessage(Role::kUser, text), {}});
}

void Conversation::AddAnswer(const Completion& answer, const TemplateOptions& options,
                             bool exact_ids, const Tokenizer& tokenizer) {
  Entry entry;
  entry.message.role = Role::kAssistant;
  entry.message.text = answer.text;
  if (answer.has_reasoning) entry.message.reasoning = answer.reasoning;
  // A stop string cut the text, so the ids say more than the text. Stripped reasoning moves the
  // answer to other positions: its keys and values are of no use, the template's text is.
  const bool same_text = answer.finish != FinishReason::kStopString;
  if (exact_ids && same_text && (!answer.has_reasoning || options.keep_thinking)) {
    entry.ids = answer.tokens;
    if (answer.finish == FinishReason::kStop) entry.ids.pop_back();
    if (options.keep_thinking && UsesEmptyThinking(options)) {
      std::vector<int32_t> ids = tokenizer.EncodeWithSpecials(kNoThinking);
      Append(entry.ids, &ids);
      entry.ids = std::move(ids);
    }
  }
  entries_.push_back(std::move(entry));
}

bool Conversation::DropLastAnswer() {
  if (entries_.empty() || entries_.back().message.role != Role::kAssistant) return false;
  entries_.pop_back();
  return true;
}

bool Conversation::DropLastTurn() {
  for (size_t i = entries_.size(); i-- > 0;) {
    if (!IsTurnStart(i)) continue;
    entries_.resize(i);
    return true;
  }
  return false;
}

bool Conversation::DropOldestTurn() {
  size_t begin = 0;
  while (begin < entries_.size() && !IsTurnStart(begin)) ++begin;
  size_t end = begin + 1;
  while (end < entries_.size() && !IsTurnStart(end)) ++end;
  if (end >= entries_.size()) return false;
  entries_.erase(entries_.begin() + begin, entries_.begin() + end);
  return true;
}

int Conversation::num_turns() const {
  int turns = 0;
  for (size_t i = 0; i < entries_.size(); ++i) turns += IsTurnStart(i) ? 1 : 0;
  return turns;
}

bool Conversation::waits_for_answer() const {
  return !entries_.empty() && entries_.back().message.role != Role::kAssistant;
}

std::optional<std::string> Conversation::LastQuestion() const {
  for (size_t i = entries_.size(); i-- > 0;) {
    if (IsTurnStart(i)) return entries_[i].message.text;
  }
  return std::nullopt;
}

StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                            const Conversation& conversation,
                                            const TemplateOptions& options) {
  std::vector<Message> messages = conversation.Messages();
  std::string unique = "\x01kept answer ";
  while (Occurs(messages, unique)) unique += "\x01";
  const size_t first = messages.size() - conversation.entries().size();
  for (size_t i = first; i < messages.size(); ++i) {
    if (conversation.entries()[i - first].ids.empty()) continue;
    messages[i].text = Mark(unique, i);
    messages[i].reasoning.reset();
  }
  const bool no_system = conversation.system().has_value() && conversation.system()->empty();
  if (no_system && options.family != ChatFamily::kQwen25) messages.erase(messages.begin());

  ChatOptions chat;
  chat.enable_thinking = options.think;
  chat.tools_json = options.tools_json;
  chat.keep_thinking_in_history = options.keep_thinking;
  KU_ASSIGN_OR_RETURN(std::vector<Segment> segments,
                      RenderSegments(options.family, messages, chat));
  // Qwen2.5's template cannot be told to have no system message, only an empty one.
  if (no_system && !segments.empty() && segments[0].text.starts_with(kEmptySystem)) {
    segments[0].text.erase(0, sizeof(kEmptySystem) - 1);
  }
  std::vector<int32_t> ids;
  for (size_t i = first; i < first + conversation.entries().size(); ++i) {
    const std::vector<int32_t>& kept = conversation.entries()[i - first].ids;
    std::vector<Segment> before;
    if (kept.empty() || !SplitAt(Mark(unique, i), &segments, &before)) continue;
    Append(EncodeChat(tokenizer, before), &ids);
    Append(kept, &ids);
  }
  Append(EncodeChat(tokenizer, segments), &ids);
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

}  // namespace kuiper::demo
