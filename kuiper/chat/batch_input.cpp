#include "kuiper/chat/batch_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kuiper/base/errors.h"

namespace kuiper {

BatchInput::~BatchInput() {
  if (fd_ != STDIN_FILENO) close(fd_);
}

StatusOr<std::unique_ptr<BatchInput>> BatchInput::Open(const std::string& path) {
  const int fd = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return InputError("cannot open requests file " + path + ": " + std::strerror(errno));
  std::unique_ptr<BatchInput> input(new BatchInput(fd, path == "-" ? "standard input" : path));
  struct stat info = {};
  if (fstat(fd, &info) != 0) return InputError("cannot read " + path + ": " + std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return InputError(path + " is a directory");
  if (!S_ISREG(info.st_mode)) return input;
  const off_t begin = lseek(fd, 0, SEEK_CUR);
  while (input->NextLine().has_value()) ++input->count_;
  if (input->count_ == 0) return input->NoRequests();
  if (lseek(fd, begin, SEEK_SET) != begin)
    return InputError("cannot read " + path + ": " + std::strerror(errno));
  input->reader_ = LineReader(fd);
  input->num_lines_ = 0;
  return input;
}

Status BatchInput::NoRequests() const {
  return InputError(name_ + " holds no requests");
}

bool BatchInput::Ready(int timeout_ms) {
  while (!put_back_.has_value() && !ahead_.has_value() && reader_.Ready(timeout_ms)) {
    ahead_ = reader_.Next();
    if (!ahead_.has_value()) return true;  // the end
    ++num_lines_;
    if (ahead_->find_first_not_of(" \t") == std::string::npos) ahead_.reset();
  }
  return put_back_.has_value() || ahead_.has_value();
}

std::optional<std::string> BatchInput::NextLine() {
  while (!Ready(-1)) {  // interrupted by a signal
  }
  return std::exchange(ahead_, std::nullopt);
}

std::optional<BatchInput::Item> BatchInput::Next() {
  if (put_back_.has_value()) {
    ++num_read_;
    return std::exchange(put_back_, std::nullopt);
  }
  const std::optional<std::string> text = NextLine();
  if (!text.has_value()) {
    status_ = reader_.status();
    if (status_.ok() && num_read_ == 0) status_ = NoRequests();
    return std::nullopt;
  }
  const std::string where = "line " + std::to_string(num_lines_);
  Item item{{}, ParseJson(*text, StatusCode::kInput, where)};
  item.line = BatchLine(++num_read_, item.json.ok() ? *item.json : JsonNode());
  if (item.line.custom_id.has_value() && !custom_ids_.insert(*item.line.custom_id).second) {
    item.json = Status(StatusCode::kInput, where + ": an earlier line has this custom_id");
  }
  return item;
}

}  // namespace kuiper
