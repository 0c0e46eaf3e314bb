// Remembers the token ids of earlier answers, because clients send answers back as text.
// Tokenizing that text again need not give the generated ids. With the original ids, the next
// prompt matches the KV cache. An LRU cache; callable from any thread.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kuiper/chat/conversation.h"

namespace kuiper {

// Hashes the messages before an answer and the options that their prompt depends on.
uint64_t HistoryKey(std::span<const Message> messages, const TemplateOptions& options);

class AnswerMemory {
 public:
  explicit AnswerMemory(size_t max_tokens) : max_tokens_(max_tokens) {}

  // Remembers that `ids` produce the answer `text` after the messages of `history`.
  void Keep(uint64_t history, const std::string& text, std::vector<int32_t> ids);
  // Sets Message::ids of each assistant message whose token ids are remembered for the same options
  // and the same messages before it. Messages with tool calls or parts are left alone.
  void Recall(const TemplateOptions& options, std::vector<Message>* messages);
  size_t num_tokens() const;

 private:
  struct Answer {
    uint64_t key;
    std::string text;
    std::vector<int32_t> ids;
  };
  const size_t max_tokens_;
  mutable std::mutex mutex_;
  std::list<Answer> answers_;  // most recently used first
  std::unordered_map<uint64_t, std::list<Answer>::iterator> places_;
  size_t num_tokens_ = 0;
};

}  // namespace kuiper
