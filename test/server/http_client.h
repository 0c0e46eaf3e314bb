// A raw client for tests: it writes and reads arbitrary bytes, valid HTTP or not.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace kuiper::test {

// Long enough for a busy machine; successful tests do not wait this long.
inline constexpr int kPatienceSeconds = 120;

template <typename F>
bool Eventually(const F& f) {
  for (int i = 0; i < kPatienceSeconds * 100; ++i) {
    if (f()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  explicit RawClient(const std::string& path) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    is_connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;

  bool is_connected() const { return is_connected_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // True if data can be read at once.
  bool HasAnswer() const {
    char byte = 0;
    return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  bool Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  // Returns the bytes of a POST request with a body.
  static std::string PostOf(const std::string& body,
                            const std::string& path = "/v1/chat/completions") {
    return "POST " + path +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
  }
  // Reads up to and including `end`; keeps the bytes after it. "" if the connection ends before.
  std::string ReadTo(const std::string& end) {
    size_t at;
    while ((at = read_.find(end)) == std::string::npos) {
      if (!ReadMore()) return "";
    }
    const std::string text = read_.substr(0, at + end.size());
    read_.erase(0, at + end.size());
    return text;
  }
  // Reads everything until the server closes the connection.
  std::string ReadAll() {
    while (ReadMore()) {
    }
    return std::exchange(read_, {});
  }
  // A complete response: the head, and the body (by Content-Length or chunks).
  struct Answer {
    int status = 0;
    std::string head, body;
  };
  Answer ReadAnswer() {
    Answer answer;
    answer.head = ReadTo("\r\n\r\n");
    if (answer.head.size() < 12) return answer;
    answer.status = std::stoi(answer.head.substr(9, 3));
    if (answer.head.find("chunked") != std::string::npos) {
      while (true) {
        const std::string size = ReadTo("\r\n");
        if (size.empty()) return answer;
        const size_t count = std::stoul(size, nullptr, 16);
        answer.body += ReadCount(count);
        ReadTo("\r\n");
        if (count == 0) return answer;
      }
    }
    const size_t length = answer.head.find("Content-Length: ");
    if (length != std::string::npos) {
      answer.body = ReadCount(std::stoul(answer.head.substr(length + 16)));
    }
    return answer;
  }
  Answer Ask(const std::string& method, const std::string& path, const std::string& body = "",
             const std::string& headers = "") {
    Send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return ReadAnswer();
  }

 private:
  std::string ReadCount(size_t count) {
    while (read_.size() < count && ReadMore()) {
    }
    const std::string text = read_.substr(0, count);
    read_.erase(0, count);
    return text;
  }
  bool ReadMore() {
    pollfd poller = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&poller, 1, kPatienceSeconds * 1000) != 1) return false;
    char bytes[4096];
    const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
    if (n <= 0) return false;
    read_.append(bytes, static_cast<size_t>(n));
    return true;
  }

  int fd_ = -1;
  bool is_connected_ = false;
  std::string read_;
};

}  // namespace kuiper::test
