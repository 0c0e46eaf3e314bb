// Listening sockets, and the limit of open files; plain POSIX.
#pragma once

#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

struct ListenSocket {
  int fd = -1;
  int family = 0;
  int port = 0;         // 0 for a UNIX socket
  std::string address;  // for messages
};

// `port` 0 = any free port. The caller closes the descriptor. kInvalidArgument.
StatusOr<ListenSocket> ListenOnPort(const std::string& host, int port);
// Replaces a stale socket that no process listens on. Only the file's owner may connect.
StatusOr<ListenSocket> ListenOnPath(const std::string& path);

// Raises the soft limit of open files to `wanted`, at most to the hard limit. Returns the new
// limit.
long RaiseOpenFiles(long wanted);

}  // namespace kuiper
