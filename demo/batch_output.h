// The file of answers: one line per request in the order of the requests, so its length says how
// far a run has come. Only whole lines count: after a kill the torn end is cut off and the next run
// goes on behind it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "demo/batch_request.h"
#include "demo/line_reader.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"

namespace kuiper::demo {

class BatchOutput {
 public:
  // "-" is standard output. Locks a regular file and cuts off its torn end; refuses the file that
  // is open as `input_fd`.
  static StatusOr<std::unique_ptr<BatchOutput>> Open(const std::string& path, int input_fd);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;

  // The whole lines that an earlier run left, one by one; read them all before the first Write.
  std::optional<std::string> NextFinished();
  // Appends whole lines and, for a regular file, waits until they are on the disk.
  Status Write(const std::string& lines);

 private:
  BatchOutput(int fd, std::string path, bool regular);
  Status CutTornEnd();

  int fd_;
  std::string path_;
  bool regular_;
  LineReader finished_;
};

// A line of answers with its newline. A function of the request, the model and the flags: neither
// times nor what the prefix cache found are in it, so a repeated run gives the same bytes.
std::string BatchAnswerLine(const BatchLine& line, bool chat, const std::string& model,
                            const std::vector<Completion>& choices);
std::string BatchErrorLine(const BatchLine& line, const Status& status);

}  // namespace kuiper::demo
