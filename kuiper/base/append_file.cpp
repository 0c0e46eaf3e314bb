#include "kuiper/base/append_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

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
  // Any other error means that the file system does not support locks.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Status(StatusCode::kInvalidArgument, path + " is being written by another process");
  }
  KU_RETURN_IF_ERROR(file->FindPartialLine());
  return file;
}

Status AppendFile::FindPartialLine() {
  const off_t size = lseek(fd_, 0, SEEK_END);
  char block[4096];
  for (whole_end_ = size; whole_end_ > 0;) {
    const off_t begin = std::max<off_t>(0, whole_end_ - static_cast<off_t>(sizeof(block)));
    const ssize_t n = pread(fd_, block, static_cast<size_t>(whole_end_ - begin), begin);
    if (n != whole_end_ - begin) return WriteFailed(path_);
    const void* newline = memrchr(block, '\n', static_cast<size_t>(n));
    whole_end_ =
        newline == nullptr ? begin : begin + (static_cast<const char*>(newline) - block) + 1;
    if (newline != nullptr) break;
  }
  partial_line_.resize(static_cast<size_t>(std::min<int64_t>(size - whole_end_, 1 << 16)));
  const ssize_t n = pread(fd_, partial_line_.data(), partial_line_.size(), whole_end_);
  if (n != static_cast<ssize_t>(partial_line_.size()) || lseek(fd_, 0, SEEK_SET) != 0) {
    return WriteFailed(path_);
  }
  ahead_ = finished_.Next();
  return OkStatus();
}

std::optional<std::string> AppendFile::NextFinished() {
  if (!ahead_.has_value()) return std::nullopt;
  std::optional<std::string> line = std::exchange(ahead_, finished_.Next());
  // The last line that was read is the partial one, which is not returned.
  return ahead_.has_value() || partial_line_.empty() ? line : std::nullopt;
}

Status AppendFile::CutPartialLine() {
  if (!regular_) return OkStatus();
  partial_line_.clear();
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

Status CheckWritable(const std::string& path) {
  struct stat old = {};
  const bool exists = stat(path.c_str(), &old) == 0;
  // Opening a named pipe would wait for its reader; closing it would give that reader end of file.
  if (exists && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode)) {
    return access(path.c_str(), W_OK) == 0 ? OkStatus() : WriteFailed(path);
  }
  const bool is_name = lstat(path.c_str(), &old) == 0;  // a file or a dangling link has this name
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return WriteFailed(path);
  close(fd);
  if (!is_name) unlink(path.c_str());
  return OkStatus();
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
