// The ids behind the answers of earlier turns. Clients send an answer back as text, and its text
// tokenized anew need not give the ids that were generated; with the ids, the next prompt begins
// with what is in the KV cache. The least recently used answers are forgotten. Any thread.
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

// A key of the messages that stand before an answer, and of all that their prompt depends on.
uint64_t HistoryKey(std::span<const Message> messages, const TemplateOptions& options);

class AnswerMemory {
 public:
  explicit AnswerMemory(size_t max_tokens) : max_tokens_(max_tokens) {}

  // `ids` give `text` behind the messages of `history`.
  void Keep(uint64_t history, const std::string& text, std::vector<int32_t> ids);
  // Gives the assistant's messages the ids that are known.
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
  std::list<Answer> answers_;  // used last first
  std::unordered_map<uint64_t, std::list<Answer>::iterator> places_;
  size_t num_tokens_ = 0;
};

}  // namespace kuiper
