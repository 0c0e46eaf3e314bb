// Reads a file or pipe of requests line by line, in bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "kuiper/base/json.h"
#include "kuiper/base/line_reader.h"
#include "kuiper/base/status.h"
#include "kuiper/chat/batch_line.h"

namespace kuiper {

class BatchInput {
 public:
  // "-" = standard input. kInput if it cannot be read, or is a regular file without a request.
  static StatusOr<std::unique_ptr<BatchInput>> Open(const std::string& path);
  ~BatchInput();
  BatchInput(const BatchInput&) = delete;
  BatchInput& operator=(const BatchInput&) = delete;

  struct Item {
    BatchLine line;
    StatusOr<JsonNode> json;  // error if the line is not JSON or repeats a custom_id
  };
  // Returns the next request; skips blank lines. Returns nothing at the end; then check status().
  std::optional<Item> Next();
  // True if Next would return at once; waits like LineReader::Ready.
  bool Ready(int timeout_ms);
  // Puts back the item that was read last.
  void PutBack(Item item) {
    --num_read_;
    put_back_ = std::move(item);
  }

  // kInput if the input failed to be read or ended without a request.
  const Status& status() const { return status_; }
  int64_t num_read() const { return num_read_; }
  int64_t count() const { return count_; }  // 0 = unknown: the input is not a regular file
  int fd() const { return fd_; }

 private:
  BatchInput(int fd, std::string name) : fd_(fd), name_(std::move(name)), reader_(fd) {}
  std::optional<std::string> NextLine();
  Status NoRequests() const;

  int fd_;
  std::string name_;  // in messages
  LineReader reader_;
  Status status_;
  int64_t count_ = 0;
  int64_t num_lines_ = 0;  // includes blank lines
  int64_t num_read_ = 0;
  std::optional<std::string> ahead_;  // the next line, if already read
  std::optional<Item> put_back_;
  std::unordered_set<std::string> custom_ids_;
};

}  // namespace kuiper
