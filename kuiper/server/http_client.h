// An HTTP client for load generators: many concurrent calls to one server on one thread, without
// blocking on any of them. Each call has its own connection. Uses plain sockets and poll.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/clock.h"
#include "kuiper/base/status.h"
#include "kuiper/server/http_parser.h"
#include "kuiper/server/http_reply.h"

namespace kuiper {

struct HttpCall {
  std::string method = "GET";
  std::string path;  // follows the address's prefix
  std::string body = {};
  HttpHeaders headers = {};
};

// The progress of a call since the last Poll.
struct HttpUpdate {
  int64_t call = 0;
  Clock::time_point at;  // time of reading
  int status = 0;        // 0 until the header has arrived
  std::string body = {};
  bool has_ended = false;
  Status error = {};  // not OK if the response is incomplete
};

class HttpClient {
 public:
  // `url` is like "http://127.0.0.1:8000/v1" or "unix:/run/kuiper.sock"; its path (/v1) is put
  // before the path of each call. kInvalidArgument; kUnavailable if no server listens there.
  static StatusOr<std::unique_ptr<HttpClient>> Open(const std::string& url);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;

  // Starts a call and returns its id. kUnavailable if it cannot connect.
  StatusOr<int64_t> Begin(const HttpCall& call);
  // Waits at most `timeout` for progress of any call.
  std::vector<HttpUpdate> Poll(std::chrono::milliseconds timeout);
  // Closes the call's connection.
  void Cancel(int64_t call);
  int num_calls() const { return static_cast<int>(calls_.size()); }

  // The complete response to one call.
  struct Answer {
    int status = 0;
    std::string body;
  };
  StatusOr<Answer> Ask(const HttpCall& call, std::chrono::milliseconds timeout);

 private:
  struct Calling {
    int fd = -1;
    std::string unsent;
    HttpReply reply = {};
  };

  struct Address {
    std::string host;      // value of the Host header
    std::string prefix;    // put before each path
    std::string resolved;  // the bytes of a sockaddr
  };
  explicit HttpClient(Address address) : address_(std::move(address)) {}
  static StatusOr<Address> Parse(const std::string& url);
  static StatusOr<Address> Resolve(Address address, const std::string& host,
                                   const std::string& port);

  // Writes and reads as much as possible without blocking.
  HttpUpdate Advance(int64_t id, Calling* calling, int events);

  const Address address_;
  std::map<int64_t, Calling> calls_;
  int64_t next_call_ = 1;
};

}  // namespace kuiper
