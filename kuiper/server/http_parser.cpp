#include "kuiper/server/http_parser.h"

// Must precede the first Asio header: Boost 1.74 needs it with C++20 but does not include it.
// clang-format off
#include <utility>
// clang-format on

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <limits>

#include "kuiper/base/check.h"
#include "kuiper/server/http_feed.h"

namespace kuiper {

namespace http = boost::beast::http;

namespace {

using boost::beast::iequals;

int CountOf(const HttpRequest& request, std::string_view name) {
  return static_cast<int>(std::count_if(request.headers.begin(), request.headers.end(),
                                        [&](const auto& header) { return header.first == name; }));
}

// Returns why the body's end or the target host is ambiguous; "" if neither is. The library treats
// an unknown transfer coding as an empty body (RFC 9112, 6.1, 6.3 and 3.2).
std::string FramingProblem(const HttpRequest& request) {
  if (const std::string* coding = request.Header("transfer-encoding"); coding != nullptr) {
    if (request.is_http_1_0) return "Transfer-Encoding is not for HTTP/1.0";
    if (CountOf(request, "transfer-encoding") > 1 || !iequals(*coding, "chunked")) {
      return "the Transfer-Encoding is not chunked alone";
    }
    if (CountOf(request, "content-length") > 0) {
      return "there are both Transfer-Encoding and Content-Length";
    }
  }
  const int num_hosts = CountOf(request, "host");
  if (num_hosts > 1) return "there is more than one Host header";
  if (num_hosts == 0 && !request.is_http_1_0) return "there is no Host header";
  return "";
}

// True if `text` is a host with or without a port (RFC 3986, 3.2.2 and 3.2.3).
bool IsAuthority(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-._~!$&'()*+;=:[]%").find(static_cast<char>(c)) !=
               std::string_view::npos;
  });
}

// Splits the target: a path, a whole URL, or the asterisk of OPTIONS (RFC 9112, 3.2). Returns the
// problem with it or with the host; "" if there is none.
std::string TakeTarget(std::string target, HttpRequest* request) {
  const std::string* host = request->Header("host");
  if (host != nullptr && !IsAuthority(*host)) return "the Host header is not a valid host";
  for (const boost::beast::string_view scheme : {"http://", "https://"}) {
    if (!iequals(target.substr(0, scheme.size()), scheme)) continue;
    target.erase(0, scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    const std::string authority = target.substr(0, end);
    if (authority.empty() || !IsAuthority(authority)) return "the URL has no host";
    target.erase(0, end);
    if (!target.starts_with('/')) target.insert(0, "/");
    std::erase_if(request->headers, [](const auto& header) { return header.first == "host"; });
    request->headers.emplace_back("host", authority);
    break;
  }
  if (!target.starts_with('/') && !(target == "*" && request->method == "OPTIONS")) {
    return "the request target is neither a path nor a URL";
  }
  const size_t question = std::min(target.find('?'), target.size());
  request->path = target.substr(0, question);
  if (question < target.size()) request->query = target.substr(question + 1);
  return "";
}

}  // namespace

struct HttpParser::Reader {
  explicit Reader(const HttpLimits& limits) {
    parser.header_limit(static_cast<uint32_t>(
        std::min<size_t>(limits.max_header, std::numeric_limits<uint32_t>::max())));
    parser.body_limit(limits.max_body);
    parser.eager(false);  // until the header is checked
  }

  http::request_parser<http::string_body> parser;
};

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
  boost::system::error_code error;
  if (state_ == State::kHeader) {
    has_begun_ |= Feed(reader_->parser, &bytes_, &error, true) > 0;
    if (!error && reader_->parser.is_header_done() && !TakeHeader()) return;
  }
  auto& parser = reader_->parser;
  if (!error && parser.is_header_done()) Feed(parser, &bytes_, &error);
  if (error) {
    if (error == http::error::header_limit) return Fail(431, "the header is too long");
    if (error == http::error::body_limit) {
      return Fail(413, "the body is longer than " + std::to_string(limits_.max_body) + " bytes");
    }
    return Fail(400, "malformed HTTP: " + error.message());
  }
  if (parser.is_done()) {
    state_ = State::kDone;
  } else if (bytes_.size() > limits_.max_header) {
    // In a chunked body, only a chunk's size line or the trailer can buffer this much.
    Fail(431, "the header is too long");
  } else if (parser.is_header_done()) {
    state_ = State::kBody;
  }
}

bool HttpParser::TakeHeader() {
  const auto& message = reader_->parser.get();
  request_ = {};
  request_.method = std::string(message.method_string());
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request_.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request_.keep_alive = message.keep_alive();
  request_.is_http_1_0 = message.version() < 11;
  std::string problem = FramingProblem(request_);
  if (problem.empty()) problem = TakeTarget(std::string(message.target()), &request_);
  if (!problem.empty()) {
    Fail(400, std::move(problem));
    return false;
  }
  reader_->parser.eager(true);
  return true;
}

void HttpParser::Fail(int status, std::string message) {
  state_ = State::kFailed;
  reader_ = std::make_unique<Reader>(limits_);
  bytes_.clear();
  error_status_ = status;
  error_ = std::move(message);
}

size_t HttpParser::body_size() const {
  return state_ == State::kBody ? reader_->parser.get().body().size() : 0;
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
  HttpRequest request = std::exchange(request_, {});
  request.body = std::move(message.body());
  reader_ = std::make_unique<Reader>(limits_);
  state_ = State::kHeader;
  has_begun_ = false;
  if (!bytes_.empty()) Parse();
  return request;
}

}  // namespace kuiper
