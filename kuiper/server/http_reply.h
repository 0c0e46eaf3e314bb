// Parses the HTTP/1.0 or 1.1 response to one request from the bytes of a connection. Returns the
// body in pieces as they arrive. The body's end is given by a length, by chunks or by the
// connection's end. Bounds the header, never throws and uses no sockets.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "kuiper/base/status.h"

namespace kuiper {

class HttpReply {
 public:
  HttpReply();
  ~HttpReply();
  HttpReply(HttpReply&&) noexcept;

  // kInput if the bytes are not a valid response.
  Status Push(std::string_view bytes);
  // Call when the connection has ended. kInput if the response is incomplete.
  Status End();

  int status() const { return status_; }  // 0 until the header is complete
  bool is_done() const { return is_done_; }
  // Returns the bytes of the body that have arrived since the last call.
  std::string TakeBody();

 private:
  struct Reader;  // hides the library
  Status Check(const std::string& problem);

  std::unique_ptr<Reader> reader_;
  std::string bytes_;  // not yet consumed by the reader
  std::string body_;
  int status_ = 0;
  bool is_done_ = false;
};

}  // namespace kuiper
