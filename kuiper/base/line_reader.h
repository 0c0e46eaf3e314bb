// Lines of a file descriptor, for chats and batches: bounded, without read-ahead beyond what
// arrived.
#pragma once

#include <optional>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // The next line without its line break, nullopt at the end of input. Of a line of more than 64 MB
  // that much is kept and the rest skipped.
  std::optional<std::string> Next();

  // Whether Next would return at once. Waits for that at most so long, -1 for any time; a signal
  // ends the wait.
  bool Ready(int timeout_ms);

  // kInput when the input ended because it cannot be read.
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
  size_t searched_ = 0;   // there is no such end before
};

}  // namespace kuiper
