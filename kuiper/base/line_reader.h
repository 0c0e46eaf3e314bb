// Reads lines from a file descriptor, for chats and batches. Lines are bounded in length, and input
// is read no further ahead than what has arrived.
#pragma once

#include <optional>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // Returns the next line without its line break; nullopt at the end of input. A line longer than
  // 64 MB is cut to that size and the remainder skipped.
  std::optional<std::string> Next();

  // True if Next would return at once. Waits for that at most timeout_ms (-1: no limit); a signal
  // ends the wait.
  bool Ready(int timeout_ms);

  // kInput if the input ended because of a read error.
  const Status& status() const { return status_; }

 private:
  bool HasLine();
  void Fill();

  int fd_;
  bool at_end_ = false;
  Status status_;
  std::string buffer_;
  size_t line_end_ =
      std::string::npos;  // where the first line of the buffer ends, once it is known
  size_t searched_ = 0;   // no line end lies before this byte
};

}  // namespace kuiper
