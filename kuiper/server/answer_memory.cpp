#include "kuiper/server/answer_memory.h"

#include <string>
#include <utility>

#include "kuiper/base/hash.h"

namespace kuiper {
namespace {

// Hashes the length first, so that "a" + "bc" and "ab" + "c" differ.
uint64_t Add(const std::string& text, uint64_t hash) {
  return Fnv1a64OfText(text, Fnv1a64OfText(std::to_string(text.size()) + ":", hash));
}

uint64_t Add(const Message& message, uint64_t hash) {
  hash = Add(std::string(RoleName(message.role)), hash);
  return Add(message.source.IsNull() ? message.text : PythonJson(message.source), hash);
}

uint64_t Begin(const TemplateOptions& options) {
  uint64_t hash = kFnv1a64Init;
  for (const std::string& tool : options.tools_json) hash = Add(tool, hash);
  hash = Add(PythonJson(options.template_kwargs), hash);
  hash = Add(PythonJson(options.documents), hash);
  return Add(options.think.has_value() ? (*options.think ? "on" : "off") : "", hash);
}

uint64_t KeyOf(uint64_t history, const std::string& text) {
  return Add(text, history);
}

}  // namespace

uint64_t HistoryKey(std::span<const Message> messages, const TemplateOptions& options) {
  uint64_t hash = Begin(options);
  for (const Message& message : messages) hash = Add(message, hash);
  return hash;
}

void AnswerMemory::Keep(uint64_t history, const std::string& text, std::vector<int32_t> ids) {
  if (ids.empty() || ids.size() > max_tokens_) return;
  const uint64_t key = KeyOf(history, text);
  const std::lock_guard lock(mutex_);
  if (const auto place = places_.find(key); place != places_.end()) {
    num_tokens_ -= place->second->ids.size();
    answers_.erase(place->second);
  }
  num_tokens_ += ids.size();
  answers_.push_front({key, text, std::move(ids)});
  places_[key] = answers_.begin();
  while (num_tokens_ > max_tokens_) {
    num_tokens_ -= answers_.back().ids.size();
    places_.erase(answers_.back().key);
    answers_.pop_back();
  }
}

void AnswerMemory::Recall(const TemplateOptions& options, std::vector<Message>* messages) {
  // Hashing a long conversation is slow: do it without the lock, so that Keep does not wait.
  std::vector<std::pair<uint64_t, Message*>> wanted;
  uint64_t history = Begin(options);
  for (Message& message : *messages) {
    if (message.role == Role::kAssistant && message.tool_calls.empty() && message.parts.empty()) {
      wanted.emplace_back(KeyOf(history, message.text), &message);
    }
    history = Add(message, history);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [key, message] : wanted) {
    const auto place = places_.find(key);
    // Keys may collide, so compare the text too.
    if (place == places_.end() || place->second->text != message->text) continue;
    answers_.splice(answers_.begin(), answers_, place->second);
    message->ids = place->second->ids;
  }
}

size_t AnswerMemory::num_tokens() const {
  const std::lock_guard lock(mutex_);
  return num_tokens_;
}

}  // namespace kuiper
