#include "kuiper/server/http_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace kuiper {
namespace {

Status BadUrl(const std::string& url) {
  return Status(StatusCode::kInvalidArgument, "cannot use the address " + url,
                "it looks like http://127.0.0.1:8000 or unix:/run/kuiper.sock");
}

Status Unreachable(const std::string& why) {
  return Status(StatusCode::kUnavailable, "cannot connect: " + why);
}

Status Lost(const char* what) {
  return Status(StatusCode::kUnavailable, std::string(what) + ": " + std::strerror(errno));
}

bool MustWait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

// Returns a socket that is connecting (connected if `waits`), or -1 and errno.
int Connect(const std::string& resolved, bool waits) {
  const auto* address = reinterpret_cast<const sockaddr*>(resolved.data());
  const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  if (address->sa_family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (!waits) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  if (connect(fd, address, static_cast<socklen_t>(resolved.size())) == 0) return fd;
  if (!waits && errno == EINPROGRESS) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// True if a server listens at the address.
bool IsListening(const std::string& resolved) {
  const int fd = Connect(resolved, true);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

std::string BytesOf(const void* address, size_t size) {
  return {static_cast<const char*>(address), size};
}

}  // namespace

StatusOr<HttpClient::Address> HttpClient::Parse(const std::string& url) {
  constexpr std::string_view kHttp = "http://", kUnix = "unix:";
  if (url.starts_with(kUnix)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = url.substr(kUnix.size());
    if (path.empty() || path.size() >= sizeof(address.sun_path)) return BadUrl(url);
    std::copy(path.begin(), path.end(), address.sun_path);
    Address found{"localhost", "", BytesOf(&address, sizeof(address))};
    return IsListening(found.resolved) ? StatusOr(found) : Unreachable(std::strerror(errno));
  }
  if (!url.starts_with(kHttp)) return BadUrl(url);
  const size_t slash = std::min(url.find('/', kHttp.size()), url.size());
  Address address{url.substr(kHttp.size(), slash - kHttp.size()), url.substr(slash), ""};
  while (address.prefix.ends_with('/')) address.prefix.pop_back();
  std::string host = address.host, port = "80";
  const size_t colon = host.rfind(':');
  if (colon != std::string::npos && !host.ends_with(']')) {
    port = host.substr(colon + 1);
    host.resize(colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool is_port = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  if (host.empty() || !is_port) return BadUrl(url);
  return Resolve(std::move(address), host, port);
}

StatusOr<HttpClient::Address> HttpClient::Resolve(Address address, const std::string& host,
                                                  const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (failed != 0) return Unreachable(host + ": " + gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    address.resolved = BytesOf(a->ai_addr, a->ai_addrlen);
    if (IsListening(address.resolved)) return address;
  }
  return Unreachable(host + " port " + port + ": " + std::strerror(errno));
}

StatusOr<std::unique_ptr<HttpClient>> HttpClient::Open(const std::string& url) {
  KU_ASSIGN_OR_RETURN(Address address, Parse(url));
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(address)));
}

HttpClient::~HttpClient() {
  for (const auto& [id, calling] : calls_) close(calling.fd);
}

StatusOr<int64_t> HttpClient::Begin(const HttpCall& call) {
  const int fd = Connect(address_.resolved, false);
  if (fd < 0) return Unreachable(std::strerror(errno));
  std::string text =
      call.method + " " + address_.prefix + call.path + " HTTP/1.1\r\nHost: " + address_.host +
      "\r\nConnection: close\r\nContent-Length: " + std::to_string(call.body.size()) + "\r\n";
  for (const auto& [name, value] : call.headers) {
    text.append(name).append(": ").append(value).append("\r\n");
  }
  const int64_t id = next_call_++;
  calls_.emplace(id, Calling{.fd = fd, .unsent = text + "\r\n" + call.body});
  return id;
}

std::vector<HttpUpdate> HttpClient::Poll(std::chrono::milliseconds timeout) {
  std::vector<pollfd> pollers;
  std::vector<int64_t> ids;
  for (const auto& [id, calling] : calls_) {
    const int events = POLLIN | (calling.unsent.empty() ? 0 : POLLOUT);
    pollers.push_back({.fd = calling.fd, .events = static_cast<int16_t>(events), .revents = 0});
    ids.push_back(id);
  }
  std::vector<HttpUpdate> all;
  if (poll(pollers.data(), pollers.size(), static_cast<int>(timeout.count())) <= 0) return all;
  for (size_t i = 0; i < pollers.size(); ++i) {
    if (pollers[i].revents == 0) continue;
    HttpUpdate update = Advance(ids[i], &calls_.at(ids[i]), pollers[i].revents);
    if (update.has_ended) Cancel(ids[i]);
    if (update.has_ended || !update.body.empty()) all.push_back(std::move(update));
  }
  return all;
}

HttpUpdate HttpClient::Advance(int64_t id, Calling* calling, int events) {
  HttpUpdate update{.call = id, .at = Clock::now()};
  if ((events & POLLOUT) != 0) {
    const std::string& text = calling->unsent;
    const ssize_t sent = send(calling->fd, text.data(), text.size(), MSG_NOSIGNAL);
    // A server that stopped reading may already have replied: stop sending, keep reading.
    if (sent < 0 && !MustWait()) calling->unsent.clear();
    if (sent > 0) calling->unsent.erase(0, static_cast<size_t>(sent));
  }
  std::array<char, 65536> bytes;
  while ((events & ~POLLOUT) != 0 && update.error.ok() && !calling->reply.is_done()) {
    const ssize_t count = recv(calling->fd, bytes.data(), bytes.size(), 0);
    if (count > 0) {
      update.error = calling->reply.Push({bytes.data(), static_cast<size_t>(count)});
      continue;
    }
    if (count < 0 && MustWait()) break;
    update.error = count == 0 ? calling->reply.End() : Lost("the connection was lost");
    if (update.error.ok()) break;
  }
  update.status = calling->reply.status();
  update.body = calling->reply.TakeBody();
  update.has_ended = calling->reply.is_done() || !update.error.ok();
  return update;
}

void HttpClient::Cancel(int64_t call) {
  const auto place = calls_.find(call);
  if (place == calls_.end()) return;
  close(place->second.fd);
  calls_.erase(place);
}

StatusOr<HttpClient::Answer> HttpClient::Ask(const HttpCall& call,
                                             std::chrono::milliseconds timeout) {
  KU_ASSIGN_OR_RETURN(const int64_t id, Begin(call));
  Answer answer;
  const Clock::time_point end = Clock::now() + timeout;
  while (Clock::now() < end) {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    for (const HttpUpdate& update : Poll(rest + std::chrono::milliseconds(1))) {
      if (update.call != id) continue;
      answer.status = update.status;
      answer.body += update.body;
      KU_RETURN_IF_ERROR(update.error);
      if (update.has_ended) return answer;
    }
  }
  Cancel(id);
  return Status(StatusCode::kUnavailable, "no answer to " + call.path);
}

}  // namespace kuiper
