#include "kuiper/base/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace kuiper {
namespace {

constexpr size_t kMaxLine = size_t{64} << 20;

}  // namespace

std::optional<std::string> LineReader::Next() {
  std::string line;
  while (true) {
    const size_t end = buffer_.find('\n');
    const bool found = end != std::string::npos;
    if (!found && at_end_ && buffer_.empty() && line.empty()) return std::nullopt;
    line.append(buffer_, 0, std::min(end, kMaxLine - line.size()));
    buffer_.erase(0, found ? end + 1 : end);
    if (found || at_end_) break;
    Fill();
  }
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

// More into the empty buffer.
void LineReader::Fill() {
  buffer_.resize(4096);
  ssize_t n = 0;
  do {
    n = read(fd_, buffer_.data(), buffer_.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    status_ =
        Status(StatusCode::kInput, std::string("cannot read the input: ") + std::strerror(errno));
  }
  at_end_ = n <= 0;
  buffer_.resize(n > 0 ? static_cast<size_t>(n) : 0);
}

}  // namespace kuiper
