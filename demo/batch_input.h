// The file of requests, read line by line: bounded memory for any length, pipes too. A line has the
// form of OpenAI's batches:
// {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "kuiper/base/json.h"
#include "kuiper/base/line_reader.h"
#include "kuiper/base/status.h"
#include "kuiper/chat/chat_request.h"

namespace kuiper::demo {

// Which request this is; numbers count from 1.
struct BatchLine {
  int64_t number = 0;
  std::optional<std::string> custom_id;
};

// What the answer is filed under; absent when the line has none.
std::optional<std::string> CustomIdOf(const JsonNode& line);

// What a line asks for; `defaults` holds what its body leaves out. kInput.
StatusOr<ChatRequest> ParseBatchLine(const JsonNode& line, const Request& defaults);

class BatchInput {
 public:
  // "-" is standard input. kInput unless it can be read and, for a regular file, holds a request.
  static StatusOr<std::unique_ptr<BatchInput>> Open(const std::string& path);
  ~BatchInput();
  BatchInput(const BatchInput&) = delete;
  BatchInput& operator=(const BatchInput&) = delete;

  struct Item {
    BatchLine line;
    StatusOr<JsonNode> json;  // not ok: the line is no JSON, or its custom_id was there before
  };
  // Blank lines do not count.
  std::optional<Item> Next();

  const Status& status() const { return reader_.status(); }
  int64_t num_read() const { return num_read_; }
  int64_t count() const { return count_; }  // 0: not known, the input is no regular file
  int fd() const { return fd_; }

 private:
  explicit BatchInput(int fd) : fd_(fd), reader_(fd) {}
  std::optional<std::string> NextLine();

  int fd_;
  LineReader reader_;
  int64_t count_ = 0;
  int64_t num_read_ = 0;
  std::unordered_set<std::string> custom_ids_;
};

}  // namespace kuiper::demo
