// An HTTP/1.1 server on one thread: connections, timeouts, keep-alive, chunked responses, slow
// readers, disconnecting clients. It hides the network library; the handler produces the responses.
//
// An exchange is a request/response pair; its number is never reused. All methods except Post and
// Stop must be called on the thread that runs the server.
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
  int port = 0;             // 0 = any free port
  std::string unix_socket;  // if not empty, listen on this path instead of a port
  HttpLimits limits;
  int max_connections = 4096;
  size_t max_body_memory = size_t{256} << 20;  // for incoming bodies; a single one always fits
  std::chrono::milliseconds header_timeout{10000};
  std::chrono::milliseconds body_timeout{60000};
  std::chrono::milliseconds idle_timeout{75000};   // between the requests of a connection
  std::chrono::milliseconds write_timeout{30000};  // while the client accepts no byte
  size_t max_unsent = 256 << 10;                   // unsent bytes of a stream
  // Socket send buffer in bytes; 0 = system default. Tests set a small one to make slow readers.
  int send_buffer = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Must answer, now or later, with Send, or with Begin, Write and End.
  virtual void OnRequest(int64_t exchange, HttpRequest request) = 0;
  // The client left before its response ended. Later writes to the exchange are discarded.
  virtual void OnGone(int64_t exchange) = 0;
  // Returns the response body for invalid HTTP; the connection is closed after it.
  virtual std::string ErrorBody(int status, const std::string& message) = 0;
  // Called ten times a second.
  virtual void OnTick() = 0;
};

class HttpServer {
 public:
  // Binds and listens. kInvalidArgument if the address is unusable. Raises the soft limit of open
  // files. If that is not enough, allows fewer connections and adds a warning.
  static StatusOr<std::unique_ptr<HttpServer>> Listen(const HttpSettings& settings,
                                                      std::vector<std::string>* warnings);
  ~HttpServer();

  // "http://127.0.0.1:8000", "unix:/run/kuiper.sock"
  std::string address() const;
  int port() const;  // 0 for a UNIX socket

  // Serves until Stop.
  void Run(HttpHandler& handler);
  // Any thread: lets Run call `f`. After Stop, `f` may never be called.
  void Post(std::function<void()> f);
  void Stop();

  // Sends a complete response.
  void Send(int64_t exchange, int status, const HttpHeaders& headers, std::string_view body);
  // Send a response in parts.
  void Begin(int64_t exchange, int status, const HttpHeaders& headers);
  void Write(int64_t exchange, std::string_view part);
  void End(int64_t exchange);

  // Accepts no new connections; open ones are closed after their current response.
  void StopAccepting();
  int num_connections() const;
  // Returns the received bytes of incomplete bodies.
  size_t num_body_bytes() const;
  // Returns how many connections were closed because their clients did not read.
  int64_t num_slow_readers() const;

  struct State;  // hides the network library

 private:
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kuiper
