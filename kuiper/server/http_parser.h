// Bytes of a connection -> the requests in them. Bounds what it keeps, throws nothing, and knows no
// socket, so that tests and fuzzers reach all of it. HTTP/1.0 and 1.1; called by http_server.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kuiper {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;   // "/v1/models"; as it was sent, "*" of OPTIONS
  std::string query;  // what follows the question mark
  // Names in lower case, without those that follow a body in chunks. Where the target is a whole
  // URL, its host stands for the one of the header (RFC 9112, 3.2.2).
  HttpHeaders headers;
  std::string body;
  bool keep_alive = true;
  bool is_http_1_0 = false;

  // The value of the first header of this name, in lower case; nullptr when there is none.
  const std::string* Header(std::string_view name) const;
};

struct HttpLimits {
  size_t max_header = 16 << 10;
  size_t max_body = 32 << 20;
};

class HttpParser {
 public:
  enum class State {
    kHeader,  // waits for (more of) a header
    kBody,    // waits for (more of) a body
    kDone,    // a request can be taken; what comes is kept for the next one
    kFailed,  // the connection is of no more use
  };

  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(HttpParser&&) = delete;

  void Push(std::string_view bytes);
  State state() const { return state_; }
  // Some of the next request is there.
  bool has_begun() const { return has_begun_ || !bytes_.empty(); }
  // Bytes that are kept for later.
  size_t num_kept() const { return bytes_.size(); }
  // Bytes of the body that is being read.
  size_t body_size() const;
  // kBody: the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;
  // kFailed: 400, 413, 429 or 431, and why.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }

  // From here on the state is kFailed; what has come is forgotten.
  void Fail(int status, std::string message);

  // kDone: the request; the next one is looked for in what was kept.
  HttpRequest Take();

 private:
  struct Reader;  // hides the library
  void Parse();
  // Takes over the header, and checks what the library does not. False: it failed.
  bool TakeHeader();

  HttpLimits limits_;
  std::unique_ptr<Reader> reader_;
  HttpRequest request_;     // its header, when that is there
  std::string bytes_;       // that the reader has not consumed
  bool has_begun_ = false;  // it has consumed some
  State state_ = State::kHeader;
  int error_status_ = 0;
  std::string error_;
};

}  // namespace kuiper
