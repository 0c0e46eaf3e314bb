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
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return Status(StatusCode::kInvalidArgument, path + " is being written by another process");
  }
  KU_RETURN_IF_ERROR(file->CutTornEnd());
  return file;
}

Status AppendFile::CutTornEnd() {
  off_t end = lseek(fd_, 0, SEEK_END);
  char block[4096];
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof(block)));
    const ssize_t n = pread(fd_, block, static_cast<size_t>(end - begin), begin);
    if (n != end - begin) return WriteFailed(path_);
    const void* newline = memrchr(block, '\n', static_cast<size_t>(n));
    if (newline != nullptr) {
      end = begin + (static_cast<const char*>(newline) - block) + 1;
      break;
    }
    end = begin;
  }
  if (ftruncate(fd_, end) != 0 || lseek(fd_, 0, SEEK_SET) != 0) return WriteFailed(path_);
  return OkStatus();
}

std::optional<std::string> AppendFile::NextFinished() {
  return regular_ ? finished_.Next() : std::nullopt;
}

Status AppendFile::Write(const std::string& lines) {
  for (size_t written = 0; written < lines.size();) {
    const ssize_t n = write(fd_, lines.data() + written, lines.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteFailed(path_);
    written += static_cast<size_t>(n);
  }
  if (regular_ && fdatasync(fd_) != 0) return WriteFailed(path_);
  return OkStatus();
}

Status WriteFailed(const std::string& path) {
  return Status(StatusCode::kInternal, "cannot write " + path + ": " + std::strerror(errno));
}

}  // namespace kuiper
