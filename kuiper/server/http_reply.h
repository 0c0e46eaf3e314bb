// Bytes of a connection -> the answer to one request, its body in the pieces that arrive. Bounds
// its header, throws nothing and knows no socket. HTTP/1.0 and 1.1, by length, chunks or the
// connection's end; called by http_client.cpp.
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

  // kInput when this is no answer.
  Status Push(std::string_view bytes);
  // The connection has ended. kInput when the answer has not.
  Status End();

  int status() const { return status_; }  // 0: the header is not there yet
  bool is_done() const { return is_done_; }
  // What of the body has come since this was asked last.
  std::string TakeBody();

 private:
  struct Reader;  // hides the library
  Status Check(const std::string& problem);

  std::unique_ptr<Reader> reader_;
  std::string bytes_;  // that the reader has not consumed
  std::string body_;
  int status_ = 0;
  bool is_done_ = false;
};

}  // namespace kuiper
