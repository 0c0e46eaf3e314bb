// Lines typed into chats, newest last, kept in a file that only its owner may read.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

// Returns $XDG_STATE_HOME/kuiper/chat_history, or without that variable a path below
// ~/.local/state; "" without a home.
std::string HistoryPath();

class InputHistory {
 public:
  // Reads the file; a missing file is not an error. "" keeps the history in memory only.
  explicit InputHistory(std::string path);

  const std::vector<std::string>& lines() const { return lines_; }
  // Appends the line to the file, unless it equals the newest one. kInternal if that fails.
  Status Add(const std::string& line);

 private:
  Status Append(const std::string& lines);

  std::string path_;
  std::vector<std::string> lines_;
};

}  // namespace kuiper
