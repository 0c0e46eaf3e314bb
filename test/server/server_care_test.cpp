// Error cases: bad requests, disconnecting clients, overload, shutdown.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

#include "kuiper/base/log.h"
#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::Eventually;
using test::RawClient;
using test::ServedEngine;

TEST(ServerCare, BadRequestsHaveTheirStatusAndCode) {
  ServedEngine served;
  std::ifstream file(test::Source("test/server/bad_requests.json"));
  const Json cases = Json::parse(file);
  ASSERT_GE(cases.size(), 60u);
  RawClient client(served.port());
  for (const Json& c : cases) {
    Json body = c.value("body", Json());
    std::string text = body.is_string() ? body.get<std::string>() : body.dump();
    const auto answer =
        client.Ask(c.value("method", "POST"), c.value("path", "/v1/chat/completions"), text,
                   c.value("headers", ""));
    ASSERT_EQ(answer.status, c["status"]) << c << "\n" << answer.body;
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["code"], c["code"]) << c << "\n" << answer.body;
    EXPECT_EQ(error["param"], c.value("param", Json())) << c << "\n" << answer.body;
    EXPECT_FALSE(error["message"].get<std::string>().empty());
    EXPECT_FALSE(error["type"].is_null());
  }
  EXPECT_EQ(served.Chat({}).status, 200) << "and it goes on";
}

TEST(ServerCare, PagesOfTheAllowedOriginMayReadAllAnswers) {
  ServerSettings settings;
  settings.access.cors_origin = "https://app.example";
  ServedEngine served({}, settings);
  const auto allowed = [&](const char* method, const char* path, const Json& body = Json()) {
    const auto answer = served.Ask(method, path, body.is_null() ? "" : body.dump(),
                                   "Origin: https://app.example\r\n");
    return answer.head.find("Access-Control-Allow-Origin: https://app.example") !=
           std::string::npos;
  };
  EXPECT_TRUE(allowed("GET", "/v1/models"));
  EXPECT_TRUE(allowed("GET", "/metrics"));
  EXPECT_TRUE(allowed("GET", "/kuiper/kv?once=1"));
  EXPECT_TRUE(allowed("OPTIONS", "/v1/chat/completions"));
  EXPECT_TRUE(allowed("POST", "/v1/chat/completions", ServedEngine::ChatBody({})));
  EXPECT_TRUE(allowed("POST", "/v1/chat/completions", ServedEngine::ChatBody({{"stream", true}})));
  EXPECT_TRUE(allowed("POST", "/v1/chat/completions", {{"messages", 3}}));
  EXPECT_EQ(served.Ask("GET", "/v1/models", "", "Origin: https://other.example\r\n").status, 403);
  EXPECT_EQ(served.Chat({}).head.find("Access-Control"), std::string::npos);
}

std::function<void()> on_request_line;
void CallAtRequestLines(LogSeverity, const std::string& message) {
  if (message.starts_with("request id=")) on_request_line();
}

// The log line of an ended answer is written after all answers of the step.
TEST(ServerCare, NoAnswerWaitsForTheLogOfAnother) {
  std::atomic<int> num_read = 0;
  on_request_line = [&] { EXPECT_TRUE(Eventually([&] { return num_read == 2; })); };
  SetLogSink(CallAtRequestLines);
  {
    ServedEngine served;
    RawClient first(served.port()), second(served.port());
    const std::vector<RawClient*> clients = {&first, &second};
    for (RawClient* client : clients) {
      client->Send(RawClient::PostOf(ServedEngine::EndlessBody({{"stream", true}}).dump()));
      EXPECT_NE(client->ReadTo("content"), "");
    }
    const std::shared_ptr<void> engine_stands_still = served.Hold();
    EngineUpdate update;
    for (const int64_t exchange : {2, 3}) {  // exchange 1 is ServedEngine's own request
      AnswerEvent event;
      event.ticket = exchange;
      event.completion.emplace().finish = FinishReason::kLength;
      update.events.push_back(std::move(event));
    }
    served.server().deliver()(std::move(update));
    for (RawClient* client : clients) {
      EXPECT_NE(client->ReadTo("data: [DONE]"), "");
      ++num_read;
    }
    EXPECT_EQ(served.Ask("GET", "/health").status, 200) << "both lines are written";
  }
  SetLogSink(nullptr);
}

TEST(ServerCare, TooLongPromptsSayHowLong) {
  EngineConfig config;
  config.max_context = 40;
  ServedEngine served(config);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "word ";
  const auto answer =
      served.Chat({{"messages", {{{"role", "user"}, {"content", text}}}}, {"stream", true}});
  EXPECT_EQ(answer.status, 400);
  const Json error = Json::parse(answer.body)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["n_ctx"], 40);
  EXPECT_GT(error["n_prompt_tokens"], 40);
  EXPECT_NE(error["message"].get<std::string>().find("maximum context length is 40 tokens"),
            std::string::npos);
  // An answer that fills the context ends with "length".
  const Json whole = Json::parse(served.Chat({{"max_tokens", nullptr}, {"ignore_eos", true}}).body);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["total_tokens"], 40);
}

TEST(ServerCare, ClientsThatLeaveHoldNoPages) {
  ServedEngine served;
  std::mt19937 dice(7);
  const Json kinds[] = {
      ServedEngine::EndlessBody(), ServedEngine::EndlessBody({{"stream", true}}),
      ServedEngine::EndlessBody({{"n", 3}, {"temperature", 1}}),
      ServedEngine::EndlessBody({{"beam_width", 2}, {"stream", true}, {"max_tokens", 500}}),
      ServedEngine::EndlessBody(
          {{"messages", {{{"role", "user"}, {"content", std::string(3000, 'x')}}}}})};
  for (int round = 0; round < 12; ++round) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 8; ++i) {  // twice as many as can run
      clients.push_back(std::make_unique<RawClient>(served.port()));
      clients.back()->Send(RawClient::PostOf(kinds[dice() % std::size(kinds)].dump()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(dice() % 40));
    clients.clear();
    EXPECT_TRUE(Eventually([&] {
      return !served.Call([](Engine& engine) { return engine.HasWork(); }) &&
             served.PagesHeld() == 0;
    })) << "round "
        << round;
  }
  EXPECT_TRUE(Eventually([&] {
    return served.Metric("kuiper:num_requests_waiting{model_name=\"tiny\"}") == 0 &&
           served.Metric("kuiper:num_requests_running{model_name=\"tiny\"}") == 0;
  }));
  EXPECT_EQ(served.Chat({}).status, 200);
}

// Once the server knows that the client left, the engine frees its pages within one step.
TEST(ServerCare, PagesAreFreeOneStepAfterTheClientWasMissed) {
  ServedEngine served;
  const std::string aborted = "kuiper:requests_aborted_total{model_name=\"tiny\"}";
  const Json kinds[] = {
      ServedEngine::EndlessBody({{"stream", true}}),
      ServedEngine::EndlessBody({{"stream", true}, {"n", 3}, {"temperature", 1}}),
      ServedEngine::EndlessBody({{"stream", true}, {"beam_width", 3}, {"max_tokens", 900}})};
  double expected = served.Metric(aborted);
  for (const Json& kind : kinds) {
    RawClient client(served.port());
    client.Send(RawClient::PostOf(kind.dump()));
    ASSERT_TRUE(Eventually([&] { return served.PagesHeld() > 0; }));
    auto held = served.Hold();
    client.Close();
    ++expected;
    ASSERT_TRUE(Eventually([&] { return served.Metric(aborted) == expected; }));
    held.reset();
    // Each call is one iteration of the engine thread; the first one sees the blocked step.
    int turns = 0;
    while (served.PagesHeld() > 0) ++turns;
    EXPECT_LE(turns, 1) << kind;
  }
}

TEST(ServerCare, AHeadOfAStreamEnds) {
  ServedEngine served;
  RawClient client(served.port());
  client.Send("HEAD /kuiper/kv HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(client.ReadTo("\r\n\r\n").find("text/event-stream"), std::string::npos);
  EXPECT_EQ(client.Ask("GET", "/health").status, 200);
}

TEST(ServerCare, PathsMayEndWithASlashOrBeWholeUrls) {
  ServedEngine served;
  const std::string body = ServedEngine::ChatBody({}).dump();
  EXPECT_EQ(served.Ask("POST", "/v1/chat/completions/", body).status, 200);
  EXPECT_EQ(served.Ask("GET", "/v1/models/").status, 200);
  EXPECT_EQ(served.Ask("GET", "/v1/models/tiny/").status, 200);
  EXPECT_EQ(served.Ask("GET", "/health/").status, 200);
  EXPECT_EQ(served.Ask("GET", "/health//").status, 404);
  EXPECT_EQ(served.Ask("GET", "/kuiper/page.css").body,
            served.Ask("GET", "/kuiper/page.css/").body);
  EXPECT_EQ(served.Ask("GET", "http://localhost/health").status, 200);
  EXPECT_EQ(served.Ask("GET", "http://evil.example/v1/models").status, 403)
      << "the URL counts, not the Host header";
  const auto options = served.Ask("OPTIONS", "*");
  EXPECT_EQ(options.status, 204);
  const auto wrong = served.Ask("DELETE", "/v1/models");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("Allow: GET, OPTIONS"), std::string::npos) << wrong.head;
  RawClient empty(served.port());
  empty.Send("GET /v1/models HTTP/1.1\r\nHost:\r\n\r\n");
  EXPECT_EQ(empty.ReadAnswer().status, 403) << "names nobody";
}

TEST(ServerCare, NamesOfModelsMayBeEscaped) {
  ServedEngine served;
  EXPECT_EQ(served.Ask("GET", "/v1/models/t%69ny").status, 200);
  EXPECT_EQ(served.Ask("GET", "/v1/models/t%2569ny").status, 404);
}

TEST(ServerCare, KeysAreAskedFor) {
  ServerSettings settings;
  settings.access.api_keys = {"secret"};
  ServedEngine served({}, settings);
  EXPECT_EQ(served.Ask("GET", "/v1/models").status, 401);
  const auto messages = served.Ask("POST", "/v1/messages", "{}");
  EXPECT_EQ(messages.status, 401);
  EXPECT_EQ(Json::parse(messages.body)["type"], "error") << "in the form of the interface";
  EXPECT_EQ(served.Ask("GET", "/v1/models", "", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(served.Ask("GET", "/v1/models", "", "X-Api-Key: secret\r\n").status, 200);
  for (const char* path : {"/health", "/metrics", "/ping", "/version"}) {
    EXPECT_EQ(served.Ask("GET", path).status, 200) << path;
  }
  for (const char* path : {"/props", "/kuiper/kv?once=1"}) {
    EXPECT_EQ(served.Ask("GET", path).status, 401) << path << " says more than how it goes";
  }
}

TEST(ServerCare, AServerThatLoadsSaysSo) {
  ServedEngine served({}, {}, false);
  const auto health = served.Ask("GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body)["status"], "loading");
  EXPECT_EQ(served.Ask("GET", "/ping").status, 200);
  EXPECT_EQ(served.Ask("GET", "/metrics").status, 200);
  const auto chat = served.Chat({});
  EXPECT_EQ(chat.status, 503);
  EXPECT_EQ(Json::parse(chat.body)["error"]["code"], "loading");
  served.Open();
  EXPECT_EQ(served.Chat({}).status, 200);
}

TEST(ServerCare, RequestsMayTakeOnlySoLong) {
  ServerSettings settings;
  settings.request_timeout = std::chrono::milliseconds(300);
  ServedEngine served({}, settings);
  auto held = served.Hold();
  const auto whole = served.Ask("POST", "/v1/chat/completions", ServedEngine::EndlessBody().dump());
  EXPECT_EQ(whole.status, 408) << whole.body;
  held.reset();
  // On a busy machine the timeout may pass before a stream begins.
  RawClient::Answer stream;
  EXPECT_TRUE(Eventually([&] {
    stream = served.Ask("POST", "/v1/chat/completions",
                        ServedEngine::EndlessBody({{"stream", true}}).dump());
    return stream.status == 200;
  }));
  const auto events = ServedEngine::Events(stream.body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events[events.size() - 2]["error"]["code"], "timeout");
  EXPECT_TRUE(Eventually([&] { return served.PagesHeld() == 0; }));
}

TEST(ServerCare, StreamsEndWellWhenTheServerDoes) {
  ServerSettings settings;
  settings.drain_timeout = std::chrono::minutes(10);
  ServedEngine served({}, settings);
  RawClient idle(served.port()), busy(served.port());
  EXPECT_EQ(idle.Ask("GET", "/health").status, 200);
  busy.Send(RawClient::PostOf(
      ServedEngine::ChatBody({{"stream", true}, {"max_tokens", 300}, {"ignore_eos", true}})
          .dump()));
  ASSERT_FALSE(busy.ReadTo("data: ").empty());
  served.server().Drain();
  const std::string rest = busy.ReadAll();
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  EXPECT_NE(rest.find("\"finish_reason\":\"length\""), std::string::npos);
  EXPECT_EQ(idle.ReadAll(), "");
  RawClient late(served.port());
  EXPECT_NE(late.is_connected() ? late.Ask("GET", "/health").status : 0, 200);
}

TEST(ServerCare, WhatDoesNotEndInTimeIsEnded) {
  ServerSettings settings;
  settings.drain_timeout = std::chrono::milliseconds(300);
  ServedEngine served({}, settings);
  RawClient busy(served.port());
  busy.Send(RawClient::PostOf(ServedEngine::EndlessBody({{"stream", true}}).dump()));
  ASSERT_FALSE(busy.ReadTo("data: ").empty());
  served.server().Drain();
  const std::string rest = busy.ReadAll();
  EXPECT_NE(rest.find("\"code\":\"draining\""), std::string::npos);
  EXPECT_TRUE(rest.find("data: [DONE]") != std::string::npos);
}

TEST(ServerCare, SilentStreamsArePinged) {
  ServerSettings settings;
  settings.ping_interval = std::chrono::milliseconds(100);
  ServedEngine served({}, settings);
  const auto held = served.Hold();
  RawClient waits(served.port());
  waits.Send(RawClient::PostOf(ServedEngine::EndlessBody({{"stream", true}}).dump()));
  EXPECT_FALSE(waits.ReadTo(": ping\n\n").empty());
}

}  // namespace
}  // namespace kuiper
