// A file that takes its name only when it is complete: whoever reads it, or is interrupted while
// writing it, finds the old content or the new one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

// Writes to a temporary file beside `path`, which Commit renames. What is there keeps its
// permissions, and a symbolic link stays one: its target is replaced, or made where there is none.
// What is no regular file, and what is open already, as /dev/stdout wherever it leads, is never
// replaced but written to at once.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  // Without Commit: the file under `path` stays as it was.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // The first failure, kInternal "cannot write PATH: ...". After one the others do nothing.
  const Status& status() const { return status_; }
  const Status& Write(const void* data, size_t bytes);
  // The content is on the disk before it has the name.
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
