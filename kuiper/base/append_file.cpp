#include "kuiper/base/append_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace kuiper {

AppendFile::AppendFile(int fd, std::string path, bool regular)
    : fd_(fd), path_(std::move(path)), regular_(regular), finished_(fd) {}

AppendFile::~AppendFile() {
  if (fd_ != STDOUT_FILENO) close(fd_);
}

StatusOr<std::unique_ptr<AppendFile>> AppendFile::Open(const std::string& path) {
  if (path == "-") {
    return std::unique_ptr<AppendFile>(new AppendFile(STDOUT_FILENO, "standard output", false));
  }
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);  // a pipe or a device
  if (fd < 0) return WriteFailed(path);
  struct stat info = {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  std::unique_ptr<AppendFile> file(new AppendFile(fd, path, regular));
  if (!regular) return file;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return Status(StatusCode::kInvalidArgument, path + " is being written by another process");
  }
  KU_RETURN_IF_ERROR(file->FindTorn());
  return file;
}

Status AppendFile::FindTorn() {
  std::vector<char> block(1 << 16);
  int64_t at = 0;
  for (ssize_t n; (n = pread(fd_, block.data(), block.size(), at)) != 0; at += n) {
    if (n < 0) return WriteFailed(path_);
    for (ssize_t i = 0; i < n; ++i) {
      if (block[i] != '\n') continue;
      ++num_unread_;
      whole_end_ = at + i + 1;
    }
  }
  torn_.resize(static_cast<size_t>(std::min<int64_t>(at - whole_end_, 1 << 16)));
  const ssize_t n = pread(fd_, torn_.data(), torn_.size(), whole_end_);
  return n == static_cast<ssize_t>(torn_.size()) ? OkStatus() : WriteFailed(path_);
}

std::optional<std::string> AppendFile::NextFinished() {
  if (num_unread_ == 0) return std::nullopt;
  --num_unread_;
  return finished_.Next();
}

Status AppendFile::CutTorn() {
  if (!regular_) return OkStatus();
  torn_.clear();
  const bool cut =
      ftruncate(fd_, whole_end_) == 0 && lseek(fd_, whole_end_, SEEK_SET) == whole_end_;
  return cut ? OkStatus() : WriteFailed(path_);
}

Status AppendFile::Write(const std::string& lines) {
  KU_RETURN_IF_ERROR(WriteAll(fd_, lines, path_));
  if (regular_ && fdatasync(fd_) != 0) return WriteFailed(path_);
  return OkStatus();
}

Status WriteFailed(const std::string& path) {
  return Status(StatusCode::kInternal, "cannot write " + path + ": " + std::strerror(errno));
}

Status WriteAll(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteFailed(path);
    data.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

}  // namespace kuiper
