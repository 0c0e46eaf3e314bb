#include "kuiper/server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <ctime>
#include <map>
#include <thread>

#include "kuiper/base/text.h"
#include "kuiper/server/http_client.h"
#include "test/model/model_files.h"
#include "test/server/http_client.h"

namespace kuiper {
namespace {

using test::Eventually;
using test::RawClient;

constexpr size_t kLargePart = 1 << 20;

// Answers "/echo" with the body, "/stream/N" with N parts, "/large" with three large parts at once,
// "/flood" as fast as possible, and "/wait" never.
class Echo : public HttpHandler {
 public:
  void OnRequest(int64_t exchange, HttpRequest request) override {
    ++num_requests;
    if (request.path == "/echo") {
      server->Send(exchange, 200, {{"X-Method", request.method}}, request.body);
    } else if (request.path.starts_with("/stream/")) {
      server->Begin(exchange, 200, {});
      for (int i = std::stoi(request.path.substr(8)); i > 0; --i) server->Write(exchange, "part.");
      server->End(exchange);
    } else if (request.path == "/large") {
      server->Begin(exchange, 200, {});
      for (int i = 0; i < 3; ++i) server->Write(exchange, std::string(kLargePart, 'x'));
      server->End(exchange);
    } else if (request.path == "/flood") {
      server->Begin(exchange, 200, {});
      flooded = exchange;
    }
  }
  void OnGone(int64_t exchange) override {
    if (exchange == flooded) flooded = 0;
    ++num_gone;
  }
  std::string ErrorBody(int status, const std::string& message) override {
    return std::to_string(status) + ": " + message;
  }
  void OnTick() override {
    if (flooded != 0) server->Write(flooded, std::string(20000, 'x'));
  }

  HttpServer* server = nullptr;
  std::atomic<int> num_requests = 0, num_gone = 0;
  std::atomic<int64_t> flooded = 0;
};

class HttpServerTest : public testing::Test {
 protected:
  void Start(const HttpSettings& settings = {}) {
    std::vector<std::string> warnings;
    auto server = HttpServer::Listen(settings, &warnings);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    handler_.server = server_.get();
    thread_ = std::thread([this] { server_->Run(handler_); });
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    server_->Stop();
    thread_.join();
  }
  // Runs `f` on the server's thread.
  template <typename F>
  auto Call(const F& f) {
    std::atomic<bool> done = false;
    decltype(f()) result;
    server_->Post([&] {
      result = f();
      done = true;
    });
    EXPECT_TRUE(Eventually([&] { return done.load(); }));
    return result;
  }

  Echo handler_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpServerTest, AConnectionServesManyRequests) {
  Start();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.Ask("POST", "/echo", "body " + std::to_string(i));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "body " + std::to_string(i));
  }
  EXPECT_EQ(client.Ask("GET", "/stream/3").body, "part.part.part.");
  EXPECT_EQ(client.Ask("GET", "/stream/0").body, "");
  EXPECT_EQ(client.Ask("POST", "/echo", "last", "Connection: close\r\n").body, "last");
  EXPECT_EQ(client.ReadAll(), "") << "the connection ends";
}

TEST_F(HttpServerTest, NothingBehindABodyOfUnknownLengthIsARequest) {
  Start();
  RawClient client(server_->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n"
      "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.ReadAnswer().status, 400);
  EXPECT_EQ(client.ReadAll(), "") << "the connection ends";
  EXPECT_EQ(handler_.num_requests, 0);
}

TEST_F(HttpServerTest, EveryAnswerHasItsDate) {
  Start();
  RawClient client(server_->port());
  const auto expect_date = [](const std::string& head) {
    const size_t at = head.find("\r\nDate: ");
    ASSERT_NE(at, std::string::npos) << head;
    const std::string date = head.substr(at + 8, head.find('\r', at + 2) - at - 8);
    std::tm time = {};
    const char* const end = strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time);
    ASSERT_TRUE(end != nullptr && *end == '\0') << date;
    EXPECT_LE(std::abs(std::difftime(std::time(nullptr), timegm(&time))), 60) << date;
    EXPECT_EQ(date.size(), 29u) << date;
  };
  expect_date(client.Ask("POST", "/echo", "x").head);
  expect_date(client.Ask("GET", "/stream/1").head);
  client.Send("nonsense\r\n\r\n");
  expect_date(client.ReadAnswer().head);
}

// A single body may have any size. While it arrives, others are refused and take no memory.
TEST_F(HttpServerTest, BodiesThatArriveAreLimitedTogether) {
  HttpSettings settings;
  settings.max_body_memory = 100000;
  Start(settings);
  const auto begin = [&](RawClient& client, size_t count) {
    return client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" +
                       std::string(count, 'x'));
  };
  RawClient first(server_->port()), second(server_->port()), small(server_->port());
  ASSERT_TRUE(begin(first, 200000));
  ASSERT_TRUE(
      Eventually([&] { return Call([&] { return server_->num_body_bytes(); }) == 200000; }));
  ASSERT_TRUE(begin(second, 1000));
  const auto refused = second.ReadAnswer();
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos);
  EXPECT_EQ(small.Ask("GET", "/echo").status, 200) << "has no body";
  first.Send(std::string(100000, 'x'));
  EXPECT_EQ(first.ReadAnswer().body.size(), 300000u);
  EXPECT_EQ(small.Ask("POST", "/echo", std::string(1000, 'x')).status, 200);
}

TEST_F(HttpServerTest, RequestsMayComeBeforeTheAnswers) {
  Start();
  RawClient client(server_->port());
  std::string bytes;
  for (int i = 0; i < 500; ++i) bytes += "GET /stream/2 HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_TRUE(client.Send(bytes));
  for (int i = 0; i < 500; ++i) ASSERT_EQ(client.ReadAnswer().body, "part.part.") << i;
}

TEST_F(HttpServerTest, OldClientsGetTheirStreamToTheEndOfTheConnection) {
  Start();
  RawClient client(server_->port());
  client.Send("GET /stream/2 HTTP/1.0\r\n\r\n");
  const std::string answer = client.ReadAll();
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\npart.part.")) << answer;
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start();
  RawClient client(server_->port());
  client.Send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.ReadTo("\r\n\r\n").find("X-Method: HEAD"), std::string::npos);
  EXPECT_EQ(client.Ask("POST", "/echo", "next").body, "next");
}

TEST_F(HttpServerTest, BadRequestsAreAnsweredAndEndTheConnection) {
  Start();
  const std::pair<std::string, int> cases[] = {
      {"nonsense\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n" +
           std::string(100000, 'x'),
       413},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(1 << 20, 'a') + "\r\n\r\n", 431}};
  for (const auto& [bytes, status] : cases) {
    RawClient client(server_->port());
    client.Send(bytes);
    const auto answer = client.ReadAnswer();
    EXPECT_EQ(answer.status, status);
    EXPECT_TRUE(answer.body.starts_with(std::to_string(status))) << answer.body;
    EXPECT_EQ(client.ReadAll(), "");
  }
  EXPECT_EQ(handler_.num_requests, 0);
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticed) {
  Start();
  for (const char* path : {"/wait", "/flood"}) {
    const int before = handler_.num_gone;
    {
      RawClient client(server_->port());
      client.Send(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
      ASSERT_TRUE(Eventually([&] { return handler_.num_requests > before; }));
    }
    EXPECT_TRUE(Eventually([&] { return handler_.num_gone == before + 1; })) << path;
  }
  EXPECT_TRUE(Eventually([&] { return Call([&] { return server_->num_connections(); }) == 0; }));
}

TEST_F(HttpServerTest, SlowClientsAreEnded) {
  HttpSettings settings;
  settings.header_timeout = settings.idle_timeout = settings.body_timeout =
      std::chrono::milliseconds(300);
  Start(settings);
  RawClient idle(server_->port());
  EXPECT_EQ(idle.ReadAll(), "");
  for (const char* part :
       {"GET / HT", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"}) {
    // On a busy machine the connection may be closed as idle before it has sent anything.
    EXPECT_TRUE(Eventually([&] {
      RawClient slow(server_->port());
      slow.Send(part);
      return slow.ReadAnswer().status == 408;
    })) << part;
  }
  EXPECT_TRUE(Eventually([&] { return Call([&] { return server_->num_connections(); }) == 0; }));
}

// Each byte comes in time, but the header as a whole does not.
TEST_F(HttpServerTest, HeadersMayNotComeByteByByteForEver) {
  HttpSettings settings;
  settings.header_timeout = std::chrono::milliseconds(500);
  Start(settings);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 50; ++i) slow.push_back(std::make_unique<RawClient>(server_->port()));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < until) {
    for (auto& client : slow) client->Send("G");
    RawClient other(server_->port());
    EXPECT_EQ(other.Ask("POST", "/echo", "x").body, "x") << "nobody else waits";
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  slow.front()->ReadAnswer();
  for (auto& client : slow) client->ReadAll();
  EXPECT_TRUE(Eventually([&] { return Call([&] { return server_->num_connections(); }) == 0; }));
}

// The server reads and discards the body until the client has seen the response.
TEST_F(HttpServerTest, ABodyOfAGigabyteTakesNoMemory) {
  Start();
  const size_t before = ReadKey("/proc/self/status", "VmRSS:").value();
  const std::string megabyte(1 << 20, 'x');
  for (const char* head :
       {"Content-Length: 1073741824\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n40000000\r\n"}) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.Send(std::string("POST /echo HTTP/1.1\r\nHost: x\r\n") + head));
    for (int i = 0; i < 1024 && client.Send(megabyte);) ++i;
    EXPECT_EQ(client.ReadAnswer().status, 413) << head;
  }
  const size_t peak = ReadKey("/proc/self/status", "VmHWM:").value();
  const size_t allowed = 64 << 10;  // in KiB; covers the body limit, socket buffers, sanitizers
  EXPECT_LT(ReadKey("/proc/self/status", "VmRSS:").value(), before + allowed);
  EXPECT_LT(peak, (1 << 20)) << "the body was kept";
  EXPECT_EQ(handler_.num_requests, 0);
  RawClient next(server_->port());
  EXPECT_EQ(next.Ask("POST", "/echo", "x").body, "x");
}

TEST_F(HttpServerTest, AReaderThatDoesNotReadIsEnded) {
  HttpSettings settings;
  settings.send_buffer = 4096;
  settings.max_unsent = 100000;
  Start(settings);
  RawClient reader(server_->port(), 4096);
  reader.Send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  RawClient other(server_->port());
  EXPECT_EQ(other.Ask("POST", "/echo", "x").body, "x") << "nobody else waits";
  EXPECT_TRUE(Eventually([&] { return handler_.num_gone == 1; }));
  EXPECT_EQ(Call([&] { return server_->num_slow_readers(); }), 1);
}

TEST_F(HttpServerTest, WhatComesAtOnceIsNotTheFaultOfTheReader) {
  HttpSettings settings;
  settings.send_buffer = 4096;
  settings.max_unsent = 100000;
  Start(settings);
  RawClient reader(server_->port());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(reader.Ask("GET", "/large").body.size(), 3 * kLargePart);
  }
  EXPECT_EQ(Call([&] { return server_->num_slow_readers(); }), 0);
}

TEST_F(HttpServerTest, TheTimeBetweenRequestsBeginsBehindTheAnswer) {
  HttpSettings settings;
  settings.send_buffer = 4096;
  settings.idle_timeout = std::chrono::milliseconds(100);
  Start(settings);
  RawClient reader(server_->port(), 4096);
  reader.Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  std::this_thread::sleep_for(5 * settings.idle_timeout);
  EXPECT_EQ(reader.ReadAnswer().body.size(), 3 * kLargePart);
}

TEST_F(HttpServerTest, TooManyConnectionsAreRefused) {
  HttpSettings settings;
  settings.max_connections = 2;
  Start(settings);
  RawClient first(server_->port()), second(server_->port());
  EXPECT_EQ(first.Ask("POST", "/echo", "1").status, 200);
  EXPECT_EQ(second.Ask("POST", "/echo", "2").status, 200);
  RawClient third(server_->port());
  EXPECT_EQ(third.ReadAnswer().status, 503);
  third.Close();
  second.Close();
  EXPECT_TRUE(Eventually([&] {
    RawClient fourth(server_->port());
    return fourth.Ask("POST", "/echo", "4").status == 200;
  }));
}

TEST_F(HttpServerTest, StreamsEndWhenNothingIsAccepted) {
  Start();
  RawClient idle(server_->port()), busy(server_->port());
  EXPECT_EQ(idle.Ask("POST", "/echo", "1").status, 200);
  busy.Send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return handler_.flooded != 0; }));
  Call([&] {
    server_->StopAccepting();
    return true;
  });
  EXPECT_EQ(idle.ReadAll(), "");
  RawClient late(server_->port());
  EXPECT_FALSE(late.is_connected() && late.Ask("POST", "/echo", "x").status == 200);
  Call([&] {
    server_->End(handler_.flooded.exchange(0));
    return true;
  });
  EXPECT_EQ(busy.ReadAnswer().status, 200);
  EXPECT_TRUE(Eventually([&] { return Call([&] { return server_->num_connections(); }) == 0; }));
}

TEST_F(HttpServerTest, UnixSockets) {
  const test::TempDir dir;
  HttpSettings settings;
  settings.unix_socket = dir / "socket";
  Start(settings);
  RawClient client(settings.unix_socket);
  EXPECT_EQ(client.Ask("POST", "/echo", "x").body, "x");
  const auto other = HttpClient::Open("unix:" + settings.unix_socket);
  ASSERT_TRUE(other.ok()) << other.status().message();
  const auto answer = (*other)->Ask({"POST", "/echo", "y"}, std::chrono::minutes(2));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->body, "y");
  std::vector<std::string> warnings;
  EXPECT_FALSE(HttpServer::Listen(settings, &warnings).ok()) << "somebody listens there";
  settings.unix_socket = dir / "file";
  std::ofstream(settings.unix_socket) << "x";
  EXPECT_FALSE(HttpServer::Listen(settings, &warnings).ok()) << "no socket";
}

// All that a call received until it ended.
struct Heard {
  int status = 0;
  std::string body;
  Status error;
  bool has_ended = false;
};

TEST_F(HttpServerTest, TheClientMakesManyCallsAtOnce) {
  Start();
  auto client = HttpClient::Open("http://127.0.0.1:" + std::to_string(server_->port()) + "/");
  ASSERT_TRUE(client.ok()) << client.status().message();
  std::map<int64_t, std::string> expected;
  const std::string large(3 << 20, 'x');  // more than a socket accepts at once
  for (int i = 0; i < 60; ++i) {
    const std::string body = i % 10 == 0 ? large : std::to_string(i);
    const HttpCall call = i % 2 == 0 ? HttpCall{"POST", "/echo", body, {{"X-A", "b"}}}
                                     : HttpCall{"GET", "/stream/99"};
    const auto id = (*client)->Begin(call);
    ASSERT_TRUE(id.ok());
    for (int part = 0; part < 99 && i % 2 == 1; ++part) expected[*id] += "part.";
    if (i % 2 == 0) expected[*id] = body;
  }
  std::map<int64_t, Heard> heard;
  while ((*client)->num_calls() > 0) {
    for (const HttpUpdate& update : (*client)->Poll(std::chrono::seconds(1))) {
      Heard& call = heard[update.call];
      EXPECT_FALSE(call.has_ended);
      call.status = update.status;
      call.body += update.body;
      call.has_ended = update.has_ended;
      EXPECT_TRUE(update.error.ok()) << update.error.message();
    }
  }
  EXPECT_EQ(heard.size(), expected.size());
  for (const auto& [id, body] : expected) {
    EXPECT_EQ(heard[id].status, 200);
    EXPECT_TRUE(heard[id].body == body) << id;
  }
}

TEST_F(HttpServerTest, CallsMayBeGivenUpAndServersMayLeave) {
  Start();
  const std::string url = "http://localhost:" + std::to_string(server_->port());
  const auto client = HttpClient::Open(url);
  ASSERT_TRUE(client.ok()) << client.status().message();
  const int64_t given_up = (*client)->Begin({"GET", "/wait"}).value();
  ASSERT_TRUE(Eventually([&] {
    (*client)->Poll(std::chrono::milliseconds(1));
    return handler_.num_requests == 1;
  }));
  (*client)->Cancel(given_up);
  EXPECT_TRUE(Eventually([&] { return handler_.num_gone == 1; }));

  const auto late = (*client)->Ask({"GET", "/wait"}, std::chrono::milliseconds(50));
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable);
  ASSERT_TRUE((*client)->Begin({"GET", "/flood"}).ok());
  std::string body;
  while (body.size() < 20000) {
    for (const HttpUpdate& update : (*client)->Poll(std::chrono::seconds(1))) body += update.body;
  }
  server_->Stop();
  thread_.join();
  server_.reset();
  Status error;
  while ((*client)->num_calls() > 0) {
    for (const HttpUpdate& update : (*client)->Poll(std::chrono::seconds(1))) error = update.error;
  }
  EXPECT_FALSE(error.ok()) << "a stream that is cut is no answer";
  EXPECT_FALSE((*client)->Ask({"GET", "/echo"}, std::chrono::seconds(9)).ok());
  EXPECT_EQ(HttpClient::Open(url).status().code(), StatusCode::kUnavailable);
}

TEST(HttpClientTest, AddressesThatCannotBeUsed) {
  for (const char* url : {"", "x", "https://localhost", "http://", "http://:80", "http://a:b",
                          "http://a:", "unix:", "http:///v1"}) {
    EXPECT_EQ(HttpClient::Open(url).status().code(), StatusCode::kInvalidArgument) << url;
  }
  for (const char* url : {"unix:/no/socket", "http://no.such.host.invalid:1"}) {
    EXPECT_EQ(HttpClient::Open(url).status().code(), StatusCode::kUnavailable) << url;
  }
}

TEST(HttpListen, AddressesThatCannotBeUsed) {
  std::vector<std::string> warnings;
  for (const char* host : {"no.such.host.invalid", "203.0.113.7"}) {
    HttpSettings settings;
    settings.host = host;
    const auto server = HttpServer::Listen(settings, &warnings);
    ASSERT_FALSE(server.ok()) << host;
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kuiper
