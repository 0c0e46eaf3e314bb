#include "kuiper/server/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kuiper/server/http_connection.h"
#include "kuiper/server/listen_socket.h"
// Must follow http_connection.h, which includes what Boost 1.74 leaves out.
#include <boost/asio/post.hpp>

namespace kuiper {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kTick{100};

}  // namespace

HttpServer::State::State(const HttpSettings& s) : settings(s) {}
HttpServer::State::~State() = default;

void HttpServer::State::Remove(Connection* connection) {
  connections.erase(connection);
}

// IMF-fixdate (RFC 9110, 5.6.7): English, whatever the locale is.
const std::string& HttpServer::State::Date() {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  if (now == date_time) return date;
  date_time = now;
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[64];
  std::snprintf(text, sizeof(text), "%s, %02d %s %d %02d:%02d:%02d GMT", kDays[utc.tm_wday],
                utc.tm_mday, kMonths[utc.tm_mon], 1900 + utc.tm_year, utc.tm_hour, utc.tm_min,
                utc.tm_sec);
  date = text;
  return date;
}

void HttpServer::State::Accept() {
  is_accepting = true;
  acceptor.async_accept([this](const NetworkError& error, Socket socket) {
    is_accepting = false;
    if (error == asio::error::operation_aborted || !accepts) return;
    if (error) return;  // e.g. no file descriptor left: the next tick retries
    const int on = 1;
    setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (settings.send_buffer > 0) {
      setsockopt(socket.native_handle(), SOL_SOCKET, SO_SNDBUF, &settings.send_buffer,
                 sizeof(settings.send_buffer));
    }
    NetworkError ignored;
    socket.non_blocking(true, ignored);
    const bool is_full = connections.size() >= static_cast<size_t>(settings.max_connections);
    auto connection = std::make_unique<Connection>(*this, std::move(socket));
    Connection* added = connection.get();
    connections[added] = std::move(connection);
    if (is_full) {
      added->Refuse(503, "too many connections");
    } else {
      added->Start();
    }
    Accept();
  });
}

void HttpServer::State::Tick() {
  timer.expires_after(kTick);
  timer.async_wait([this](const NetworkError& error) {
    if (error) return;
    const Clock::time_point now = Clock::now();
    for (const auto& [connection, owner] : connections) connection->CheckTime(now);
    std::erase_if(connections, [](const auto& entry) { return entry.second->is_done(); });
    handler->OnTick();
    if (accepts && !is_accepting) Accept();
    Tick();
  });
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  if (!state_->settings.unix_socket.empty()) unlink(state_->settings.unix_socket.c_str());
}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpSettings& settings,
                                                         std::vector<std::string>* warnings) {
  constexpr long kOtherFiles = 64;  // descriptors for weights, logs, the terminal
  const long room = RaiseOpenFiles(settings.max_connections + kOtherFiles) - kOtherFiles;
  HttpSettings possible = settings;
  if (room < settings.max_connections) {
    possible.max_connections = static_cast<int>(std::max(room, 1L));
    warnings->push_back("the system's limit of open files leaves room for " +
                        std::to_string(possible.max_connections) + " connections, not " +
                        std::to_string(settings.max_connections) +
                        ": ulimit -Hn, or LimitNOFILE of a unit, raises it");
  }
  KU_ASSIGN_OR_RETURN(const ListenSocket socket, settings.unix_socket.empty()
                                                     ? ListenOnPort(settings.host, settings.port)
                                                     : ListenOnPath(settings.unix_socket));
  auto state = std::make_unique<State>(possible);
  state->address = socket.address;
  state->port = socket.port;
  NetworkError error;
  state->acceptor.assign(asio::generic::stream_protocol(socket.family, 0), socket.fd, error);
  if (error) {
    close(socket.fd);
    return Status(StatusCode::kInternal, "cannot watch the socket: " + error.message());
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

std::string HttpServer::address() const {
  return state_->address;
}
int HttpServer::port() const {
  return state_->port;
}
int HttpServer::num_connections() const {
  return static_cast<int>(state_->connections.size());
}
size_t HttpServer::num_body_bytes() const {
  return state_->bodies.used();
}
int64_t HttpServer::num_slow_readers() const {
  return state_->num_slow_readers;
}

void HttpServer::Run(HttpHandler& handler) {
  state_->handler = &handler;
  state_->Accept();
  state_->Tick();
  state_->io.run();
}

void HttpServer::Post(std::function<void()> f) {
  asio::post(state_->io, std::move(f));
}

void HttpServer::Stop() {
  state_->io.stop();
}

void HttpServer::Send(int64_t exchange, int status, const HttpHeaders& headers,
                      std::string_view body) {
  if (Connection* connection = state_->Find(exchange)) connection->Send(status, headers, body);
}
void HttpServer::Begin(int64_t exchange, int status, const HttpHeaders& headers) {
  if (Connection* connection = state_->Find(exchange)) connection->Begin(status, headers);
}
void HttpServer::Write(int64_t exchange, std::string_view part) {
  if (Connection* connection = state_->Find(exchange)) connection->Write(part);
}
void HttpServer::End(int64_t exchange) {
  if (Connection* connection = state_->Find(exchange)) connection->End();
}

void HttpServer::StopAccepting() {
  state_->accepts = false;
  NetworkError ignored;
  state_->acceptor.close(ignored);
  for (const auto& [connection, owner] : state_->connections) connection->CloseIfIdle();
}

}  // namespace kuiper
