// Sockets that listen, and the number of files a process may open; plain POSIX.
#pragma once

#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

struct ListenSocket {
  int fd = -1;
  int family = 0;
  int port = 0;         // 0: a UNIX socket
  std::string address;  // for people
};

// `port` 0 takes one that is free. kInvalidArgument; the caller closes the descriptor.
StatusOr<ListenSocket> ListenOnPort(const std::string& host, int port);
// Takes the place of a socket that nobody listens on any more. Only the owner may connect.
StatusOr<ListenSocket> ListenOnPath(const std::string& path);

// Raises the soft limit of open files to `wanted` where the hard limit allows it; what it is then.
long RaiseOpenFiles(long wanted);

}  // namespace kuiper
