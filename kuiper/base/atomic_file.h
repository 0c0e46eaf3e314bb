// A file that takes its name only when it is complete: readers, and runs interrupted while writing,
// leave or find either the old content or the new one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

// Writes to a temporary file next to `path`, which Commit renames. An existing file keeps its
// permissions. A symbolic link stays a link: its target is replaced, or created if it is missing.
// Anything but a regular file, and a file that this process has open (such as /dev/stdout), is
// written to directly.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  // Without Commit, the file under `path` stays as it was.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // The first failure, kInternal "cannot write PATH: ...". After a failure the other calls do
  // nothing.
  const Status& status() const { return status_; }
  const Status& Write(const void* data, size_t bytes);
  // Renames the file after its content has reached the disk.
  const Status& Commit();

 private:
  void Fail();

  std::string path_;       // as given, for messages
  std::string target_;     // without symbolic links
  std::string temporary_;  // empty: writes to `target_` itself
  int fd_ = -1;
  Status status_;
};

}  // namespace kuiper
