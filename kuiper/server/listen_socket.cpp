#include "kuiper/server/listen_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace kuiper {
namespace {

constexpr int kBacklog = 1024;

Status Bad(const std::string& what, int error, const std::string& hint = "") {
  return Status(StatusCode::kInvalidArgument, what + ": " + std::strerror(error), hint);
}

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
}

// Returns a listening socket, or -1 and errno.
int Open(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  if (family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// True if a process accepts connections at the socket.
bool IsServed(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool served =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return served;
}

}  // namespace

StatusOr<ListenSocket> ListenOnPort(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failed != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "cannot listen on " + host + ": " + gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  int error = 0;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    const int fd = Open(a->ai_family, a->ai_addr, a->ai_addrlen);
    if (fd < 0) {
      error = errno;
      continue;
    }
    ListenSocket socket{.fd = fd, .family = a->ai_family, .port = PortOf(fd), .address = ""};
    const bool is_v6 = a->ai_family == AF_INET6 && host.find(':') != std::string::npos;
    socket.address =
        "http://" + (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(socket.port);
    return socket;
  }
  const std::string hint =
      error == EADDRINUSE ? Param("port") + " chooses another one, 0 a free one" : "";
  return Bad("cannot listen on " + host + " port " + std::to_string(port), error, hint);
}

StatusOr<ListenSocket> ListenOnPath(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Status(StatusCode::kInvalidArgument, "the path of the UNIX socket is too long: " + path);
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  struct stat before = {};
  if (lstat(path.c_str(), &before) == 0) {
    if (!S_ISSOCK(before.st_mode)) return Bad(path, EEXIST);
    if (IsServed(address)) return Bad(path, EADDRINUSE);
    unlink(path.c_str());
  }
  const mode_t mask = umask(0177);
  const int fd = Open(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(mask);
  if (fd < 0) return Bad("cannot listen on " + path, error);
  return ListenSocket{.fd = fd, .family = AF_UNIX, .port = 0, .address = "unix:" + path};
}

long RaiseOpenFiles(long wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < static_cast<rlim_t>(wanted)) {
    const rlim_t soft = limit.rlim_cur;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(wanted));
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = soft;
  }
  return static_cast<long>(limit.rlim_cur);
}

}  // namespace kuiper
