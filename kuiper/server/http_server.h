// An HTTP/1.1 server on one thread: connections, timeouts, keep-alive, chunked answers, readers
// that are too slow, clients that go away. It hides the network library; what is asked and answered
// is the handler's business.
//
// An exchange is one request and its answer; its number is never used again. All but Post and Stop
// is called on the thread that runs the server.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/server/http_parser.h"

namespace kuiper {

struct HttpSettings {
  std::string host = "127.0.0.1";
  int port = 0;             // 0: one that is free
  std::string unix_socket;  // when not empty: a socket at this path, and no port
  HttpLimits limits;
  int max_connections = 4096;
  size_t max_body_memory = size_t{256} << 20;  // of bodies that arrive; one arrives whatever it has
  std::chrono::milliseconds header_timeout{10000};
  std::chrono::milliseconds body_timeout{60000};
  std::chrono::milliseconds idle_timeout{75000};   // between requests of a connection
  std::chrono::milliseconds write_timeout{30000};  // without a byte that the client took
  size_t max_unsent = 256 << 10;                   // of a stream
  // 0: the system's own. Tests make slow readers with less.
  int send_buffer = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Must be answered, now or later, by Send, or by Begin, Write and End.
  virtual void OnRequest(int64_t exchange, HttpRequest request) = 0;
  // The client is gone before its answer ended. What is written to the exchange is forgotten.
  virtual void OnGone(int64_t exchange) = 0;
  // The whole answer to what is no HTTP; the connection ends with it.
  virtual std::string ErrorBody(int status, const std::string& message) = 0;
  // Ten times a second.
  virtual void OnTick() = 0;
};

class HttpServer {
 public:
  // Binds and listens. kInvalidArgument for an address that cannot be used. Raises the soft limit
  // of open files; where it is too low still, there are fewer connections, and `warnings` says so.
  static StatusOr<std::unique_ptr<HttpServer>> Listen(const HttpSettings& settings,
                                                      std::vector<std::string>* warnings);
  ~HttpServer();

  // "http://127.0.0.1:8000", "unix:/run/kuiper.sock"
  std::string address() const;
  int port() const;  // 0 for a UNIX socket

  // Serves until Stop.
  void Run(HttpHandler& handler);
  // Any thread: `f` is called by Run. What is posted after Stop may never be called.
  void Post(std::function<void()> f);
  void Stop();

  // A whole answer.
  void Send(int64_t exchange, int status, const HttpHeaders& headers, std::string_view body);
  // An answer in parts.
  void Begin(int64_t exchange, int status, const HttpHeaders& headers);
  void Write(int64_t exchange, std::string_view part);
  void End(int64_t exchange);

  // New connections are refused from here on; connections end with the answer they wait for.
  void StopAccepting();
  int num_connections() const;
  // The bytes that have come of bodies that are not complete.
  size_t num_body_bytes() const;
  // Connections that were ended because their clients did not read.
  int64_t num_slow_readers() const;

  struct State;  // hides the network library

 private:
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kuiper
