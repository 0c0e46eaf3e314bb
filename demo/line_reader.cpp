#include "demo/line_reader.h"

#include <unistd.h>

#include <cerrno>

namespace kuiper::demo {
namespace {

constexpr size_t kMaxLine = size_t{64} << 20;

}  // namespace

std::optional<std::string> LineReader::Next() {
  size_t searched = 0;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos || (at_end_ && !buffer_.empty()) || buffer_.size() >= kMaxLine) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return line;
    }
    if (at_end_) return std::nullopt;
    searched = buffer_.size();
    char block[4096];
    const ssize_t n = read(fd_, block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      at_end_ = true;
    } else {
      buffer_.append(block, static_cast<size_t>(n));
    }
  }
}

}  // namespace kuiper::demo
