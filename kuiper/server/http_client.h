// Many calls to one HTTP server at the same time, on one thread that never waits for a single one:
// for programs that put a server under load. A connection per call, as it was asked for; plain
// sockets and poll.
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
  std::string path;  // behind the address's prefix
  std::string body = {};
  HttpHeaders headers = {};
};

// What became of a call since it was asked about last.
struct HttpNews {
  int64_t call = 0;
  Clock::time_point at;  // when it was read
  int status = 0;        // 0: the header is not there yet
  std::string body = {};
  bool has_ended = false;
  Status error = {};  // why there is no whole answer
};

class HttpClient {
 public:
  // Of the server at "http://127.0.0.1:8000/v1" or "unix:/run/kuiper.sock"; /v1 stands before the
  // path of each call. kInvalidArgument, or kUnavailable when nobody listens there.
  static StatusOr<std::unique_ptr<HttpClient>> Open(const std::string& url);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;

  // kUnavailable when there is no socket left for it.
  StatusOr<int64_t> Begin(const HttpCall& call);
  // Waits at most so long for something to happen.
  std::vector<HttpNews> Poll(std::chrono::milliseconds timeout);
  // The client leaves.
  void Cancel(int64_t call);
  int num_calls() const { return static_cast<int>(calls_.size()); }

  // A call by itself, from its beginning to its end.
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
    std::string host;      // as the server is told
    std::string prefix;    // of paths
    std::string resolved;  // a sockaddr
  };
  explicit HttpClient(Address address) : address_(std::move(address)) {}
  static StatusOr<Address> Parse(const std::string& url);
  static StatusOr<Address> Resolve(Address address, const std::string& host,
                                   const std::string& port);

  // Writes and reads as far as that goes without waiting.
  HttpNews Advance(int64_t id, Calling* calling, int events);

  const Address address_;
  std::map<int64_t, Calling> calls_;
  int64_t next_call_ = 1;
};

}  // namespace kuiper
