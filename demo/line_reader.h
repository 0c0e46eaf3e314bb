// Lines of a file descriptor, for chats and batches: bounded, without read-ahead beyond what
// arrived.
#pragma once

#include <optional>
#include <string>

namespace kuiper::demo {

class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // The next line without its line break; nullopt at the end of input. A line of more than 64 MB is
  // cut into pieces.
  std::optional<std::string> Next();

 private:
  int fd_;
  bool at_end_ = false;
  std::string buffer_;
};

}  // namespace kuiper::demo
