// The file of a conversation that runs continue: locked from the start of a run to its end, so that
// two runs do not take turns away from each other.
#pragma once

#include <memory>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper {

class SessionFile {
 public:
  // Makes and locks the file; "" is none, and nothing is saved. What is no regular file is not
  // locked. kInternal, or kInvalidArgument when another process has the lock.
  static StatusOr<std::unique_ptr<SessionFile>> Open(const std::string& path);
  // Removes a file that Open made and in which nothing was saved.
  ~SessionFile();
  SessionFile(const SessionFile&) = delete;
  SessionFile& operator=(const SessionFile&) = delete;

  // As SaveConversation.
  Status Save(const Conversation& conversation, const std::string& model);

 private:
  explicit SessionFile(const std::string& path) : path_(path) {}
  Status Lock();
  void Unlock();

  std::string path_;
  int fd_ = -1;  // has the lock
  bool is_ours_ = false;
};

}  // namespace kuiper
