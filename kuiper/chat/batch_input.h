// The file of requests, read line by line: bounded memory for any length, pipes too.
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
  // "-" is standard input. kInput unless it can be read and, for a regular file, holds a request.
  static StatusOr<std::unique_ptr<BatchInput>> Open(const std::string& path);
  ~BatchInput();
  BatchInput(const BatchInput&) = delete;
  BatchInput& operator=(const BatchInput&) = delete;

  struct Item {
    BatchLine line;
    StatusOr<JsonNode> json;  // not ok: the line is no JSON, or its custom_id was there before
  };
  // Blank lines do not count. Nothing at the end; status() says whether that is a mistake.
  std::optional<Item> Next();
  // Whether Next would return at once, as LineReader::Ready.
  bool Ready(int timeout_ms);
  // Puts the item that was read last back.
  void PutBack(Item item) {
    --num_read_;
    put_back_ = std::move(item);
  }

  // kInput when the input ended because it cannot be read, or without a request.
  const Status& status() const { return status_; }
  int64_t num_read() const { return num_read_; }
  int64_t count() const { return count_; }  // 0: not known, the input is no regular file
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
  int64_t num_lines_ = 0;  // blank ones count
  int64_t num_read_ = 0;
  std::optional<std::string> ahead_;  // the line that comes next, if it was looked for
  std::optional<Item> put_back_;
  std::unordered_set<std::string> custom_ids_;
};

}  // namespace kuiper
