#include "kuiper/chat/session_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "kuiper/base/append_file.h"
#include "kuiper/base/atomic_file.h"
#include "kuiper/chat/conversation_file.h"

namespace kuiper {

StatusOr<std::unique_ptr<SessionFile>> SessionFile::Open(const std::string& path) {
  std::unique_ptr<SessionFile> file(new SessionFile(path));
  if (path.empty()) return file;
  KU_RETURN_IF_ERROR(AtomicFile(path).status());  // checks early that Save can write
  KU_RETURN_IF_ERROR(file->Lock());
  return file;
}

SessionFile::~SessionFile() {
  struct stat info = {};
  if (is_ours_ && fd_ >= 0 && fstat(fd_, &info) == 0 && info.st_size == 0) unlink(path_.c_str());
  Unlock();
}

void SessionFile::Unlock() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Status SessionFile::Lock() {
  while (true) {
    struct stat named = {}, opened = {};
    const bool exists = stat(path_.c_str(), &named) == 0;
    if (exists && !S_ISREG(named.st_mode)) return OkStatus();
    fd_ = open(path_.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) return WriteFailed(path_);
    // On any other error the file system does not support locks: continue without one.
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      Unlock();
      return Status(StatusCode::kInvalidArgument, path_ + " is in use by another process",
                    "choose another " + Param("session"));
    }
    // The previous lock owner may have replaced the file: check that the path still names ours.
    is_ours_ = is_ours_ || !exists;
    if (stat(path_.c_str(), &named) == 0 && fstat(fd_, &opened) == 0 &&
        named.st_dev == opened.st_dev && named.st_ino == opened.st_ino) {
      return OkStatus();
    }
    Unlock();
  }
}

Status SessionFile::Save(const Conversation& conversation, const std::string& model) {
  if (path_.empty()) return OkStatus();
  KU_RETURN_IF_ERROR(SaveConversation(conversation, model, path_));
  // Saving created a new file, but the lock is on the old one.
  Unlock();
  return Lock();
}

}  // namespace kuiper
