// An append-only file of whole lines that survives a kill. An interrupted run that is started again
// reads the whole lines, cuts off a partial last line and appends after them. Used for results
// written in the order of their requests.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kuiper/base/line_reader.h"
#include "kuiper/base/status.h"

namespace kuiper {

class AppendFile {
 public:
  // "-" is standard output. Locks a regular file; reads nothing from pipes and devices. Returns
  // kInternal, or kInvalidArgument if another process has the lock.
  static StatusOr<std::unique_ptr<AppendFile>> Open(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Returns the next whole line that an earlier run left. Read them all before the first Write.
  std::optional<std::string> NextFinished();
  // The start of a partial last line; empty if there is none.
  const std::string& partial_line() const { return partial_line_; }
  // Cuts off the partial line. Nothing else in the file ever changes.
  Status CutPartialLine();
  // Appends whole lines and, for a regular file, waits until they are on the disk.
  Status Write(const std::string& lines);

 private:
  AppendFile(int fd, std::string path, bool regular);
  Status FindPartialLine();

  int fd_;
  std::string path_;
  bool regular_;
  int64_t whole_end_ = 0;  // bytes of all whole lines
  std::string partial_line_;
  LineReader finished_;
  std::optional<std::string> ahead_;  // the line that NextFinished looks at next
};

// Returns "cannot write PATH: No such file or directory", from errno.
Status WriteFailed(const std::string& path);
// Checks that a file of this name can be written or created, without changing what is there. Errors
// as WriteFailed.
Status CheckWritable(const std::string& path);
// Writes all of `data`; errors name the file `path`.
Status WriteAll(int fd, std::string_view data, const std::string& path);

}  // namespace kuiper
