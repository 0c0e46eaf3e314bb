#include "kuiper/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "kuiper/base/append_file.h"

namespace kuiper {

namespace fs = std::filesystem;

namespace {

// Links in /proc stand for open files, not for names.
bool InProc(const fs::path& path) {
  return path.native().starts_with("/proc/");
}

// Returns `path` without symbolic links; the file itself need not exist.
fs::path Resolve(fs::path path, std::error_code& error) {
  constexpr int kMaxLinks = 40;  // as Linux
  for (int i = 0; i <= kMaxLinks; ++i) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
    path = fs::canonical(folder, error) / path.filename();
    if (error || InProc(path)) return path;
    std::error_code none;
    if (!fs::is_symlink(fs::symlink_status(path, none))) return path;
    path = path.parent_path() / fs::read_symlink(path, error);
    if (error) return path;
  }
  error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
  return path;
}

// Shares the file offset of a file that this process has open. Opening it anew would start at its
// own offset and overwrite what was written through the other descriptor.
int OpenInPlace(const fs::path& path) {
  std::error_code none;
  if (fs::exists(path, none) && path.parent_path() == fs::canonical("/proc/self/fd", none)) {
    return fcntl(std::atoi(path.filename().c_str()), F_DUPFD_CLOEXEC, 0);
  }
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  std::error_code error;
  target_ = Resolve(path, error).string();
  if (error) {
    errno = error.value();
    Fail();
    return;
  }
  struct stat old = {};
  const bool exists = stat(target_.c_str(), &old) == 0;
  if (InProc(target_) || (exists && !S_ISREG(old.st_mode))) {
    fd_ = OpenInPlace(target_);
  } else {
    // Other writers may be running, or were killed and left their temporary files.
    const mode_t mode = exists ? old.st_mode & 0777 : 0666;
    for (int i = 0; fd_ < 0 && (i == 0 || errno == EEXIST); ++i) {
      temporary_ = target_ + ".tmp." + std::to_string(i);
      fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
  }
  if (fd_ < 0) {
    Fail();
    return;
  }
  // Errors are ignored: a file system without permissions has none to keep.
  if (exists && !temporary_.empty()) (void)fchmod(fd_, old.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Fail() {
  status_ = WriteFailed(path_);
}

const Status& AtomicFile::Write(const void* data, size_t bytes) {
  if (status_.ok()) status_ = WriteAll(fd_, {static_cast<const char*>(data), bytes}, path_);
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
