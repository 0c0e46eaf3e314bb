// Implementation of http_server.h: connections and their shared state. Includes the network
// library, so only http_server.cpp and http_connection.cpp may include this header.
#pragma once

// Must precede the first Asio header: Boost 1.74 needs it with C++20 but does not include it.
// clang-format off
#include <utility>
// clang-format on

#include <array>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <ctime>
#include <memory>
#include <string>
#include <unordered_map>

#include "kuiper/base/clock.h"
#include "kuiper/base/memory_budget.h"
#include "kuiper/server/http_server.h"

namespace kuiper {

using Socket = boost::asio::generic::stream_protocol::socket;
using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;
using NetworkError = boost::system::error_code;

class Connection;

struct HttpServer::State {
  explicit State(const HttpSettings& s);
  ~State();

  void Accept();
  void Tick();
  // Returns the current time in the Date header's format; formats it once per second.
  const std::string& Date();
  void Remove(Connection* connection);
  Connection* Find(int64_t exchange) {
    const auto it = exchanges.find(exchange);
    return it == exchanges.end() ? nullptr : it->second;
  }

  const HttpSettings settings;
  std::string address;
  int port = 0;
  boost::asio::io_context io{1};
  Acceptor acceptor{io};
  boost::asio::steady_timer timer{io};
  HttpHandler* handler = nullptr;
  bool accepts = true;
  bool is_accepting = false;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections;
  std::unordered_map<int64_t, Connection*> exchanges;  // not yet ended
  int64_t next_exchange = 1;
  int64_t num_slow_readers = 0;
  std::time_t date_time = 0;  // the second that `date` was formatted for
  std::string date;
  MemoryBudget bodies{settings.max_body_memory};  // incoming bodies
};

// One client connection. At most one read and one write are pending. It is destroyed once it is
// closed and both have completed.
class Connection {
 public:
  Connection(HttpServer::State& server, Socket socket)
      : server_(server), socket_(std::move(socket)), parser_(server.settings.limits) {}

  ~Connection() { server_.bodies.Return(body_bytes_); }
  Connection(const Connection&) = delete;

  void Start() {
    SetDeadline(server_.settings.header_timeout);
    Read();
  }
  // Refuses the connection.
  void Refuse(int status, const std::string& message) {
    Fail(status, message);
    Read();
  }

  void Send(int status, const HttpHeaders& headers, std::string_view body);
  void Begin(int status, const HttpHeaders& headers);
  void Write(std::string_view part);
  void End();
  // Applies the timeouts.
  void CheckTime(Clock::time_point now);
  // Closes the connection if no response is in progress.
  void CloseIfIdle() {
    if (exchange_ == 0 && !HasUnsent()) Close();
  }
  bool is_done() const { return closed_ && !is_reading_ && !is_writing_; }

 private:
  enum class Phase { kServing, kLastAnswer, kLingering };

  void Read();
  void OnRead(size_t count);
  void CountBody();
  void OnEndOfInput();
  void Advance();
  void Dispatch();
  void Fail(int status, const std::string& message);
  void Put(std::string text);
  void StartWrite();
  void OnWritten();
  void CloseAndNotify();
  void Close();
  bool HasUnsent() const { return is_writing_ || !pending_.empty(); }
  void SetDeadline(std::chrono::milliseconds time) { deadline_ = Clock::now() + time; }
  // Sets the deadline for the next request.
  void SetIdleDeadline() {
    SetDeadline(parser_.has_begun() ? server_.settings.header_timeout
                                    : server_.settings.idle_timeout);
  }
  void EraseIfDone() {
    if (is_done()) server_.Remove(this);  // destroys this
  }

  HttpServer::State& server_;
  Socket socket_;
  HttpParser parser_;
  std::array<char, 16384> in_;
  std::string writing_, pending_;
  size_t body_bytes_ = 0;     // bytes of the incoming body, as charged to server_.bodies
  size_t written_ = 0;        // sent bytes of writing_
  size_t burst_ = 0;          // bytes of a stream since the last tick
  size_t largest_burst_ = 0;  // largest burst_ since no data was waiting to be sent
  bool is_reading_ = false, is_writing_ = false, at_end_ = false, closed_ = false;
  Phase phase_ = Phase::kServing;
  bool is_advancing_ = false;
  Clock::time_point deadline_;        // for data from the client
  Clock::time_point write_deadline_;  // for data to the client
  // State of the request that is being answered; exchange_ is 0 if there is none.
  int64_t exchange_ = 0;
  bool keep_alive_ = true, is_head_ = false, is_chunked_ = false, can_chunk_ = true;
};

}  // namespace kuiper
