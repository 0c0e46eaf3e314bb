#include "kuiper/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace kuiper {

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  std::error_code error;
  target_ = std::filesystem::canonical(path, error).string();
  if (error) target_ = path;  // nothing there yet
  struct stat old = {};
  const bool exists = stat(target_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    fd_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    temporary_ = target_ + ".tmp." + std::to_string(getpid());
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  if (fd_ < 0) {
    Fail();
    return;
  }
  // Where the file system knows no permissions there are none to keep.
  if (exists && !temporary_.empty()) (void)fchmod(fd_, old.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Fail() {
  status_ = Status(StatusCode::kInternal, "cannot write " + path_ + ": " + std::strerror(errno));
}

const Status& AtomicFile::Write(const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (status_.ok() && bytes > 0) {
    const ssize_t n = write(fd_, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Fail();
    } else {
      p += n;
      bytes -= static_cast<size_t>(n);
    }
  }
  return status_;
}

const Status& AtomicFile::Commit() {
  if (!status_.ok() || temporary_.empty()) return status_;
  if (fsync(fd_) != 0 || std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    Fail();
  } else {
    temporary_.clear();
  }
  return status_;
}

}  // namespace kuiper
