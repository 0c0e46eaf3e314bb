// The file of a conversation that later runs continue. It is locked during a run, so that two runs
// do not overwrite each other's turns.
#pragma once

#include <memory>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper {

class SessionFile {
 public:
  // Creates and locks the file; if `path` is "", nothing is saved. Files that are not regular are
  // not locked. kInternal; kInvalidArgument if another process has the lock.
  static StatusOr<std::unique_ptr<SessionFile>> Open(const std::string& path);
  // Removes the file if Open created it and it is still empty.
  ~SessionFile();
  SessionFile(const SessionFile&) = delete;
  SessionFile& operator=(const SessionFile&) = delete;

  // Saves like SaveConversation and keeps the lock.
  Status Save(const Conversation& conversation, const std::string& model);

 private:
  explicit SessionFile(const std::string& path) : path_(path) {}
  Status Lock();
  void Unlock();

  std::string path_;
  int fd_ = -1;  // owns the lock
  bool is_ours_ = false;
};

}  // namespace kuiper
