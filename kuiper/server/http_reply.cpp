#include "kuiper/server/http_reply.h"

// Must precede the first Asio header: Boost 1.74 needs it with C++20 but does not include it.
// clang-format off
#include <utility>
// clang-format on

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>

#include "kuiper/server/http_feed.h"

namespace kuiper {

namespace http = boost::beast::http;

namespace {

constexpr uint32_t kMaxHeader = 64 << 10;

}  // namespace

struct HttpReply::Reader {
  Reader() {
    parser.header_limit(kMaxHeader);
    parser.body_limit(std::numeric_limits<uint64_t>::max());  // the body does not stay here
    parser.eager(true);
  }

  http::response_parser<http::string_body> parser;
};

HttpReply::HttpReply() : reader_(std::make_unique<Reader>()) {}
HttpReply::~HttpReply() = default;
HttpReply::HttpReply(HttpReply&&) noexcept = default;

Status HttpReply::Push(std::string_view bytes) {
  bytes_.append(bytes);
  boost::system::error_code error;
  Feed(reader_->parser, &bytes_, &error);
  return Check(error ? error.message() : "");
}

Status HttpReply::End() {
  if (is_done_) return OkStatus();
  auto& parser = reader_->parser;
  boost::system::error_code error;
  if (parser.got_some()) parser.put_eof(error);
  const bool is_whole = parser.got_some() && !error;
  return Check(is_whole ? "" : "the connection ended within an answer");
}

// Copies the reader's results: status, end and body.
Status HttpReply::Check(const std::string& problem) {
  auto& parser = reader_->parser;
  if (!problem.empty()) return Status(StatusCode::kInput, "malformed HTTP: " + problem);
  if (!parser.is_header_done()) return OkStatus();
  status_ = static_cast<int>(parser.get().result_int());
  is_done_ = parser.is_done();
  body_ += std::exchange(parser.get().body(), {});
  return OkStatus();
}

std::string HttpReply::TakeBody() {
  return std::exchange(body_, {});
}

}  // namespace kuiper
