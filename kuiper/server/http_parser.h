// Parses HTTP/1.0 and 1.1 requests from the bytes of a connection. Bounds its memory, never throws,
// and uses no sockets, so that tests and fuzzers reach all of it.
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
  std::string path;   // as sent, e.g. "/v1/models"; "*" for OPTIONS
  std::string query;  // the part after the question mark
  // Names are in lower case; trailers of chunked bodies are left out. If the target is a whole URL,
  // its host replaces the Host header (RFC 9112, 3.2.2).
  HttpHeaders headers;
  std::string body;
  bool keep_alive = true;
  bool is_http_1_0 = false;

  // Returns the value of the first header of this lower-case name; null if there is none.
  const std::string* Header(std::string_view name) const;
};

struct HttpLimits {
  size_t max_header = 16 << 10;
  size_t max_body = 32 << 20;
};

class HttpParser {
 public:
  enum class State {
    kHeader,  // waits for more bytes of a header
    kBody,    // waits for more bytes of a body
    kDone,    // a request can be taken; further bytes belong to the next one
    kFailed,  // the connection is unusable
  };

  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(HttpParser&&) = delete;

  void Push(std::string_view bytes);
  State state() const { return state_; }
  // True if bytes of the next request have arrived.
  bool has_begun() const { return has_begun_ || !bytes_.empty(); }
  // Returns the number of buffered bytes.
  size_t num_kept() const { return bytes_.size(); }
  // Returns the bytes received so far of the current body.
  size_t body_size() const;
  // kBody only: true if the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;
  // kFailed only: the HTTP status 400, 413, 429 or 431, and the reason.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }

  // Sets the state to kFailed and discards all received bytes.
  void Fail(int status, std::string message);

  // kDone only: returns the request and parses the buffered bytes for the next one.
  HttpRequest Take();

 private:
  struct Reader;  // hides the library
  void Parse();
  // Copies the header and checks what the library does not. Returns false if that failed.
  bool TakeHeader();

  HttpLimits limits_;
  std::unique_ptr<Reader> reader_;
  HttpRequest request_;     // has the header as soon as that is complete
  std::string bytes_;       // not yet consumed by the reader
  bool has_begun_ = false;  // the reader has consumed bytes of this request
  State state_ = State::kHeader;
  int error_status_ = 0;
  std::string error_;
};

}  // namespace kuiper
