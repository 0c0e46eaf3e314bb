#include "kuiper/base/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace kuiper {
namespace {

constexpr size_t kMaxLine = size_t{64} << 20;

}  // namespace

bool LineReader::HasLine() {
  if (line_end_ == std::string::npos) line_end_ = buffer_.find('\n', searched_);
  searched_ = buffer_.size();
  return line_end_ != std::string::npos;
}

bool LineReader::Ready(int timeout_ms) {
  while (!HasLine() && !at_end_) {
    struct pollfd input = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&input, 1, timeout_ms) <= 0) return false;
    Fill();
  }
  return true;
}

std::optional<std::string> LineReader::Next() {
  while (!HasLine() && !at_end_) Fill();
  if (buffer_.empty()) return std::nullopt;
  const size_t end = std::min(line_end_, buffer_.size());
  std::string line = buffer_.substr(0, std::min(end, kMaxLine));
  buffer_.erase(0, std::min(end + 1, buffer_.size()));
  line_end_ = std::string::npos;
  searched_ = 0;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

// Reads more input, for a line that has not ended.
void LineReader::Fill() {
  char block[4096];
  ssize_t n = 0;
  do {
    n = read(fd_, block, sizeof(block));
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    status_ =
        Status(StatusCode::kInput, std::string("cannot read the input: ") + std::strerror(errno));
  }
  at_end_ = n <= 0;
  std::string_view more(block, n > 0 ? static_cast<size_t>(n) : 0);
  if (buffer_.size() >= kMaxLine) more.remove_prefix(std::min(more.find('\n'), more.size()));
  buffer_ += more;
}

}  // namespace kuiper
