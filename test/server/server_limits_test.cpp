// Limits on the load that a server accepts at once.
#include <gtest/gtest.h>

#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::Eventually;
using test::RawClient;
using test::ServedEngine;

TEST(ServerLimits, TooManyRequestsAreToldToWait) {
  ServerSettings settings;
  settings.max_queue = 1;
  EngineConfig config;
  config.max_num_seqs = 2;
  ServedEngine served(config, settings);
  auto held = served.Hold();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(served.port()));
    clients.back()->Send(RawClient::PostOf(ServedEngine::EndlessBody({{"stream", true}}).dump()));
  }
  EXPECT_TRUE(Eventually(
      [&] { return served.Metric("kuiper:num_requests_waiting{model_name=\"tiny\"}") == 3; }));
  const auto refused = served.Chat({});
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos);
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "queue_full");
  clients.clear();
  held.reset();
  EXPECT_TRUE(Eventually([&] { return served.Chat({}).status == 200; }));
}

TEST(ServerLimits, EachAnswerOfARequestTakesAPlace) {
  ServerSettings settings;
  settings.max_queue = 2;
  EngineConfig config;
  config.max_num_seqs = 2;
  ServedEngine served(config, settings);
  auto held = served.Hold();
  RawClient first(served.port()), second(served.port()), third(served.port());
  first.Send(RawClient::PostOf(ServedEngine::EndlessBody({{"n", 3}, {"temperature", 1}}).dump()));
  second.Send(RawClient::PostOf(ServedEngine::EndlessBody({{"n", 2}, {"temperature", 1}}).dump()));
  // The request whose body is read last is refused.
  ASSERT_TRUE(Eventually([&] { return first.HasAnswer() || second.HasAnswer(); }));
  const auto refused = (first.HasAnswer() ? first : second).ReadAnswer();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "queue_full");
  third.Send(RawClient::PostOf(ServedEngine::EndlessBody().dump()));
  EXPECT_TRUE(Eventually([&] {
    return served.Metric("kuiper:num_requests_waiting{model_name=\"tiny\"}") == 2;
  })) << "one place is left";
}

TEST(ServerLimits, ManyClientsAtOnceAreAllAnswered) {
  EngineConfig config;
  config.max_num_seqs = 16;
  ServedEngine served(config);
  const std::string request = RawClient::PostOf(ServedEngine::ChatBody({{"max_tokens", 2}}).dump());
  constexpr int kClients = 400;  // each uses two file descriptors here
  auto held = served.Hold();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(served.port()));
    ASSERT_TRUE(clients.back()->Send(request)) << i;
  }
  EXPECT_TRUE(Eventually([&] {
    return served.Metric("kuiper:num_requests_waiting{model_name=\"tiny\"}") == kClients;
  }));
  held.reset();
  for (auto& client : clients) ASSERT_EQ(client->ReadAnswer().status, 200);
  const auto many =
      served.Ask("POST", "/v1/completions",
                 Json{{"prompt", {"a", "b", "c"}}, {"n", 40}, {"max_tokens", 1}}.dump());
  EXPECT_EQ(many.status, 200) << many.body;
  EXPECT_EQ(Json::parse(many.body)["choices"].size(), 120u);
}

TEST(ServerLimits, TheMemoryOfWaitingRequestsIsLimited) {
  ServerSettings settings;
  settings.max_queue_bytes = 20000;
  ServedEngine served({}, settings);
  const auto body = [](size_t count) {
    return ServedEngine::EndlessBody({{"stream", true}, {"user", std::string(count, 'x')}}).dump();
  };
  auto held = served.Hold();
  RawClient first(served.port()), second(served.port());
  first.Send(RawClient::PostOf(body(30000)));  // alone, so any size is accepted
  EXPECT_TRUE(Eventually(
      [&] { return served.Metric("kuiper:num_requests_waiting{model_name=\"tiny\"}") == 1; }));
  // Its body is read and its prompt is charged: a small request fits, a large one does not.
  EXPECT_TRUE(Eventually(
      [&] { return served.Ask("POST", "/tokenize", "{\"content\": \"\"}").status == 200; }));
  second.Send(RawClient::PostOf(body(30000)));
  const auto refused = second.ReadAnswer();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "queue_full");
  RawClient third(served.port());
  EXPECT_TRUE(Eventually([&] {
    third.Send(RawClient::PostOf(body(10)));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return !third.HasAnswer() || third.ReadAnswer().status != 429;
  }));
}

}  // namespace
}  // namespace kuiper
