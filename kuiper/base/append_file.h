// A file of whole lines that survives a kill: only lines that end count, so a run that is started
// again reads those, cuts off what is torn, and goes on behind them. For answers in the order of
// their requests.
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
  // "-" is standard output. Locks a regular file; of pipes and devices nothing is read. kInternal,
  // or kInvalidArgument when another process has the lock.
  static StatusOr<std::unique_ptr<AppendFile>> Open(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // The whole lines that an earlier run left, one by one; read them all before the first Write.
  std::optional<std::string> NextFinished();
  // The beginning of what follows them; empty if nothing does.
  const std::string& torn() const { return torn_; }
  // Cuts that off. Nothing else in the file ever changes.
  Status CutTorn();
  // Appends whole lines and, for a regular file, waits until they are on the disk.
  Status Write(const std::string& lines);

 private:
  AppendFile(int fd, std::string path, bool regular);
  Status FindTorn();

  int fd_;
  std::string path_;
  bool regular_;
  int64_t whole_end_ = 0;  // bytes of all whole lines
  std::string torn_;
  LineReader finished_;
  std::optional<std::string> ahead_;  // the line that NextFinished looks at next
};

// "cannot write PATH: No such file or directory" from errno.
Status WriteFailed(const std::string& path);
// Whether a file can be written, or made, under this name; what is there stays as it is. As
// WriteFailed.
Status CheckWritable(const std::string& path);
// Writes all of `data`, or says why not of the file `path`.
Status WriteAll(int fd, std::string_view data, const std::string& path);

}  // namespace kuiper
