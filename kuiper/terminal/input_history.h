// What was typed into chats, newest last, kept in a file that only its owner may read.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

// $XDG_STATE_HOME/kuiper/chat_history, else that below ~/.local/state; "" without a home.
std::string HistoryPath();

class InputHistory {
 public:
  // Reads the file; one that is not there is no error. "" keeps the history in memory only.
  explicit InputHistory(std::string path);

  const std::vector<std::string>& lines() const { return lines_; }
  // Appends the line to the file, unless it is the newest already. kInternal.
  Status Add(const std::string& line);

 private:
  Status Append(const std::string& lines);

  std::string path_;
  std::vector<std::string> lines_;
};

}  // namespace kuiper
