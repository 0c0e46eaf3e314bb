#include "kuiper/server/http_parser.h"

// Before the first header of Asio: Boost 1.74 leaves it out, and needs it with C++20.
// clang-format off
#include <utility>
// clang-format on

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <charconv>
#include <limits>

#include "kuiper/base/check.h"
#include "kuiper/server/http_feed.h"

namespace kuiper {

namespace http = boost::beast::http;

struct HttpParser::Reader {
  explicit Reader(const HttpLimits& limits) {
    parser.header_limit(static_cast<uint32_t>(
        std::min<size_t>(limits.max_header, std::numeric_limits<uint32_t>::max())));
    parser.body_limit(limits.max_body);
    parser.eager(true);
  }

  http::request_parser<http::string_body> parser;
};

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const char* const digits = text.data() + i + 1;
    unsigned char byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

const std::string* HttpRequest::Header(std::string_view name) const {
  const auto it = std::find_if(headers.begin(), headers.end(),
                               [&](const auto& header) { return header.first == name; });
  return it == headers.end() ? nullptr : &it->second;
}

HttpParser::HttpParser(const HttpLimits& limits)
    : limits_(limits), reader_(std::make_unique<Reader>(limits)) {}

HttpParser::~HttpParser() = default;

void HttpParser::Push(std::string_view bytes) {
  bytes_.append(bytes);
  if (state_ == State::kHeader || state_ == State::kBody) Parse();
}

void HttpParser::Parse() {
  auto& parser = reader_->parser;
  boost::system::error_code error;
  has_begun_ |= Feed(parser, &bytes_, &error) > 0;
  if (error) {
    if (error == http::error::header_limit) return Fail(431, "the header is too long");
    if (error == http::error::body_limit) {
      return Fail(413, "the body is longer than " + std::to_string(limits_.max_body) + " bytes");
    }
    return Fail(400, "malformed HTTP: " + error.message());
  }
  if (parser.is_done()) {
    state_ = State::kDone;
  } else if (parser.is_header_done()) {
    state_ = State::kBody;
  } else if (bytes_.size() > limits_.max_header) {
    Fail(431, "the header is too long");
  }
}

void HttpParser::Fail(int status, std::string message) {
  state_ = State::kFailed;
  error_status_ = status;
  error_ = std::move(message);
}

bool HttpParser::expects_continue() const {
  if (state_ != State::kBody) return false;
  const auto& fields = reader_->parser.get();
  return fields.version() == 11 &&
         boost::beast::iequals(fields[http::field::expect], "100-continue");
}

HttpRequest HttpParser::Take() {
  KU_CHECK(state_ == State::kDone);
  auto message = reader_->parser.release();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const size_t question = std::min(target.find('?'), target.size());
  request.path = target.substr(0, question);
  if (question < target.size()) request.query = target.substr(question + 1);
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request.keep_alive = message.keep_alive();
  request.is_http_1_0 = message.version() < 11;
  request.body = std::move(message.body());
  reader_ = std::make_unique<Reader>(limits_);
  state_ = State::kHeader;
  has_begun_ = false;
  if (!bytes_.empty()) Parse();
  return request;
}

}  // namespace kuiper
