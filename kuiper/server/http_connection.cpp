#include "kuiper/server/http_connection.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace kuiper {
namespace {

namespace asio = boost::asio;

// How long to keep reading after the last response, before the connection is closed.
constexpr std::chrono::milliseconds kLinger{2000};
// Maximum buffered bytes of pipelined requests.
constexpr size_t kMaxPipelinedBytes = 64 << 10;

const char* Reason(int status) {
  static const std::map<int, const char*> reasons = {{200, "OK"},
                                                     {204, "No Content"},
                                                     {400, "Bad Request"},
                                                     {401, "Unauthorized"},
                                                     {403, "Forbidden"},
                                                     {404, "Not Found"},
                                                     {405, "Method Not Allowed"},
                                                     {408, "Request Timeout"},
                                                     {413, "Content Too Large"},
                                                     {415, "Unsupported Media Type"},
                                                     {429, "Too Many Requests"},
                                                     {431, "Request Header Fields Too Large"},
                                                     {500, "Internal Server Error"},
                                                     {503, "Service Unavailable"}};
  const auto it = reasons.find(status);
  return it == reasons.end() ? "Unknown" : it->second;
}

std::string Head(int status, const std::string& date, const HttpHeaders& headers) {
  std::string head = "HTTP/1.1 " + std::to_string(status) + " " + Reason(status) + "\r\n";
  head.append("Date: ").append(date) += "\r\n";
  for (const auto& [name, value] : headers) head.append(name).append(": ").append(value) += "\r\n";
  return head;
}

std::string Chunk(std::string_view part) {
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", part.size());
  return std::string(size).append(part) + "\r\n";
}

}  // namespace

void Connection::Read() {
  const bool is_full = phase_ == Phase::kServing && parser_.num_kept() > kMaxPipelinedBytes;
  if (closed_ || is_reading_ || at_end_ || is_full) return;
  is_reading_ = true;
  socket_.async_read_some(asio::buffer(in_), [this](const NetworkError& error, size_t count) {
    is_reading_ = false;
    if (error && !closed_) OnEndOfInput();
    if (!error && !closed_) OnRead(count);
    EraseIfDone();
  });
}

// The client half-closed: flush a finished response, abandon an unfinished one.
void Connection::OnEndOfInput() {
  at_end_ = true;
  if (exchange_ != 0 || !HasUnsent()) return CloseAndNotify();
  phase_ = Phase::kLastAnswer;
}

void Connection::OnRead(size_t count) {
  if (phase_ == Phase::kServing) {
    const bool had_begun = parser_.has_begun();
    const HttpParser::State before = parser_.state();
    parser_.Push(std::string_view(in_.data(), count));
    if (exchange_ == 0) {
      if (!had_begun) SetDeadline(server_.settings.header_timeout);
      if (before != HttpParser::State::kBody && parser_.state() == HttpParser::State::kBody) {
        SetDeadline(server_.settings.body_timeout);
        if (parser_.expects_continue()) Put("HTTP/1.1 100 Continue\r\n\r\n");
      }
    }
    CountBody();
    Advance();
  }
  Read();
}

void Connection::CountBody() {
  server_.bodies.Return(std::exchange(body_bytes_, 0));
  const size_t bytes = parser_.body_size();
  if (bytes == 0) return;
  if (!server_.bodies.Take(bytes)) {
    return parser_.Fail(
        429, "the bodies of other requests take the memory that this server has for them");
  }
  body_bytes_ = bytes;
}

// Answers the complete requests in the buffer, one after the other.
void Connection::Advance() {
  if (is_advancing_) return;
  is_advancing_ = true;
  while (exchange_ == 0 && !closed_ && phase_ == Phase::kServing &&
         pending_.size() <= server_.settings.max_unsent) {
    if (parser_.state() == HttpParser::State::kFailed) {
      Fail(parser_.error_status(), parser_.error());
    } else if (parser_.state() == HttpParser::State::kDone) {
      Dispatch();
    } else {
      break;
    }
  }
  is_advancing_ = false;
}

void Connection::Dispatch() {
  HttpRequest request = parser_.Take();
  exchange_ = server_.next_exchange++;
  server_.exchanges[exchange_] = this;
  keep_alive_ = request.keep_alive && server_.accepts;
  is_head_ = request.method == "HEAD";
  can_chunk_ = !request.is_http_1_0;
  server_.handler->OnRequest(exchange_, std::move(request));
}

void Connection::Fail(int status, const std::string& message) {
  keep_alive_ = false;
  is_head_ = false;
  const std::string body =
      server_.handler == nullptr ? "" : server_.handler->ErrorBody(status, message);
  exchange_ = server_.next_exchange++;
  server_.exchanges[exchange_] = this;
  HttpHeaders headers = {{"Content-Type", "application/json"}};
  if (status == 429 || status == 503) headers.emplace_back("Retry-After", "1");
  Send(status, headers, body);
}

void Connection::Send(int status, const HttpHeaders& headers, std::string_view body) {
  keep_alive_ = keep_alive_ && server_.accepts;
  std::string text = Head(status, server_.Date(), headers);
  text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  text += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  if (!is_head_) text.append(body);
  is_chunked_ = false;
  Put(std::move(text));
  End();
}

void Connection::Begin(int status, const HttpHeaders& headers) {
  keep_alive_ = keep_alive_ && server_.accepts && can_chunk_;
  is_chunked_ = can_chunk_ && !is_head_;
  std::string text = Head(status, server_.Date(), headers);
  if (can_chunk_) text += "Transfer-Encoding: chunked\r\n";
  text += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  Put(std::move(text));
}

void Connection::Write(std::string_view part) {
  if (part.empty() || is_head_ || closed_) return;
  Put(is_chunked_ ? Chunk(part) : std::string(part));
  // The client cannot have read a burst yet, however large: allow for the largest one.
  burst_ += part.size();
  largest_burst_ = std::max(largest_burst_, burst_);
  const size_t unsent = pending_.size() + writing_.size() - written_;
  if (unsent <= server_.settings.max_unsent + largest_burst_) return;
  ++server_.num_slow_readers;
  CloseAndNotify();
}

void Connection::End() {
  keep_alive_ = keep_alive_ && server_.accepts;
  if (std::exchange(is_chunked_, false)) Put("0\r\n\r\n");
  server_.exchanges.erase(exchange_);
  exchange_ = 0;
  if (!keep_alive_ && phase_ == Phase::kServing) phase_ = Phase::kLastAnswer;
  SetIdleDeadline();
  if (!HasUnsent()) OnWritten();
  Advance();
  if (!closed_) Read();
}

void Connection::Put(std::string text) {
  if (closed_) return;
  if (pending_.empty()) {
    pending_ = std::move(text);
  } else {
    pending_ += text;
  }
  if (!is_writing_) StartWrite();
}

void Connection::StartWrite() {
  writing_ = std::exchange(pending_, {});
  written_ = 0;
  is_writing_ = true;
  write_deadline_ = Clock::now() + server_.settings.write_timeout;
  const auto write_more = [this](const auto& self) -> void {
    socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                             [this, self](const NetworkError& error, size_t count) {
                               written_ += count;
                               if (!error && !closed_ && written_ < writing_.size()) {
                                 write_deadline_ = Clock::now() + server_.settings.write_timeout;
                                 return self(self);
                               }
                               is_writing_ = false;
                               writing_.clear();
                               written_ = 0;
                               if (error && !closed_) CloseAndNotify();
                               if (!error && !closed_) OnWritten();
                               EraseIfDone();
                             });
  };
  write_more(write_more);
}

void Connection::OnWritten() {
  if (!pending_.empty()) return StartWrite();
  if (phase_ == Phase::kLastAnswer && exchange_ == 0) {
    if (at_end_) return Close();
    // Read and discard further input: closing a socket with unread input could reset the
    // connection before the client has read the response.
    phase_ = Phase::kLingering;
    NetworkError ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    SetDeadline(kLinger);
    return;
  }
  if (exchange_ == 0 && !parser_.has_begun()) SetIdleDeadline();
  Advance();
  Read();
}

// The client has left or no longer reads: close and notify the handler.
void Connection::CloseAndNotify() {
  const int64_t exchange = std::exchange(exchange_, 0);
  Close();
  if (exchange == 0) return;
  server_.exchanges.erase(exchange);
  server_.handler->OnGone(exchange);
}

void Connection::Close() {
  if (std::exchange(closed_, true)) return;
  NetworkError ignored;
  socket_.close(ignored);  // pending operations complete with an error
}

void Connection::CheckTime(Clock::time_point now) {
  if (closed_) return;
  if (is_writing_ && now > write_deadline_) {
    if (exchange_ != 0) ++server_.num_slow_readers;
    return CloseAndNotify();
  }
  burst_ = 0;
  if (!HasUnsent()) largest_burst_ = 0;
  if (exchange_ != 0 || now <= deadline_) return;
  if (HasUnsent()) return SetIdleDeadline();
  if (phase_ != Phase::kServing || !parser_.has_begun()) return Close();
  Fail(408, "the request took too long to arrive");
}

}  // namespace kuiper
