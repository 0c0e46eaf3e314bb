// Verification of answers: they run again with and without pages, while others run.
#include <gtest/gtest.h>

#include <fstream>

#include "test/server/base64.h"
#include "test/server/joined_stream.h"
#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::Eventually;
using test::RawClient;
using test::ServedEngine;

// Returns the body that verifies the answer to a chat with these fields.
Json Answered(ServedEngine& served, const Json& fields, bool with_prompt = true) {
  Json body = ServedEngine::ChatBody(fields);
  body["return_token_ids"] = true;
  const auto answer = served.Ask("POST", "/v1/chat/completions", body.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  const Json told = Json::parse(answer.body), choice = told["choices"][0];
  body["token_ids"] = choice["token_ids"];
  body["seed"] = choice["seed"];
  if (with_prompt) body["prompt_token_ids"] = told["prompt_token_ids"];
  return body;
}

Json Verify(ServedEngine& served, const Json& body) {
  const auto answer = served.Ask("POST", "/kuiper/verify", body.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  return Json::parse(answer.body, nullptr, false);
}

void ExpectIdentical(const Json& report, size_t num_tokens) {
  EXPECT_EQ(report["identical"], true) << report;
  EXPECT_EQ(report["ids_equal"], true);
  EXPECT_EQ(report["logits_equal"], true);
  EXPECT_EQ(report["message"], "identical: " + std::to_string(num_tokens) +
                                   (num_tokens == 1 ? " token" : " tokens") + ", logits equal");
}

TEST(Verification, AnswersAreIdenticalWithoutPages) {
  for (const bool graph : {false, true}) {
    EngineConfig config;
    config.use_graph = graph;
    ServedEngine served(config);
    // Prompt lengths around the page size of 4 tokens; greedy and sampled; truncated and complete.
    for (const char* question : {"What is 2 + 3?", "What is 20 + 3?", "What is 20 + 31 + 4?"}) {
      const Json messages = {{{"role", "user"}, {"content", question}}};
      for (const Json& fields :
           {Json::object(), Json{{"temperature", 1.1}, {"top_k", 40}, {"max_tokens", 60}},
            Json{{"temperature", 0.8}, {"repetition_penalty", 1.2}, {"presence_penalty", 0.5}},
            Json{{"max_tokens", 1}}, Json{{"logprobs", true}, {"stop", {"5"}}},
            Json{{"chat_template_kwargs", {{"enable_thinking", true}}}, {"reasoning_budget", 3}}}) {
        Json wanted = fields;
        wanted["messages"] = messages;
        const Json body = Answered(served, wanted);
        const Json report = Verify(served, body);
        ExpectIdentical(report, body["token_ids"].size());
        EXPECT_GT(report["cached_tokens"], 0) << "the run with pages reuses those of the answer";
      }
    }
    EXPECT_TRUE(Eventually([&] { return served.PagesHeld() == 0; }));
  }
}

TEST(Verification, TheBodyOfAStreamWillDoAndSoDoMessagesAlone) {
  ServedEngine served;
  Json body = ServedEngine::ChatBody({{"stream", true},
                                      {"stream_options", {{"include_usage", true}}},
                                      {"return_token_ids", true},
                                      {"temperature", 1},
                                      {"seed", 11}});
  const auto stream = served.Ask("POST", "/v1/chat/completions", body.dump());
  body["token_ids"] = test::Join(stream.body, 0).ids;
  const size_t num_tokens = body["token_ids"].size();
  ASSERT_GT(num_tokens, 3u);
  ExpectIdentical(Verify(served, body), num_tokens);
  // The first chunk has the prompt's ids, which alone identify the prompt.
  const Json first = ServedEngine::Events(stream.body).at(0);
  const Json ids = first["prompt_token_ids"];
  ASSERT_GT(ids.size(), 3u);
  ExpectIdentical(Verify(served, {{"prompt_token_ids", ids},
                                  {"token_ids", body["token_ids"]},
                                  {"temperature", 1},
                                  {"seed", 11}}),
                  num_tokens);
  // An answer that was stopped early is verified up to that point.
  body["token_ids"].erase(body["token_ids"].begin() + 3, body["token_ids"].end());
  ExpectIdentical(Verify(served, body), 3);
}

TEST(Verification, WhatIsNotTheAnswerIsSeen) {
  ServedEngine served;
  const Json right = Answered(served, {{"temperature", 5}, {"seed", 3}});
  const size_t last = right["token_ids"].size() - 1;
  for (const size_t at : {size_t{0}, last / 2, last}) {
    Json wrong = right;
    const int id = wrong["token_ids"][at].get<int>();
    wrong["token_ids"][at] = id + 1;
    const Json report = Verify(served, wrong);
    EXPECT_EQ(report["identical"], false);
    EXPECT_EQ(report["ids_equal"], false);
    EXPECT_EQ(report["logits_equal"], true) << "both runs are of the same prompt";
    EXPECT_EQ(report["difference"]["token"], at);
    const std::string what =
        "id is " + std::to_string(id + 1) + " in the answer, " + std::to_string(id) + " now";
    EXPECT_EQ(report["difference"]["what"], what);
    EXPECT_EQ(report["message"], "different from token " + std::to_string(at) + " on: " + what);
  }
  Json other_seed = right;
  other_seed["seed"] = 4;
  EXPECT_EQ(Verify(served, other_seed)["identical"], false);
  Json longer = right;
  longer["token_ids"].push_back(7);
  EXPECT_EQ(Verify(served, longer)["difference"]["token"], last + 1);
}

TEST(Verification, OthersStreamMeanwhile) {
  ServedEngine served;
  const Json greedy = Answered(served, {{"ignore_eos", true}, {"max_tokens", 200}});
  const Json other = ServedEngine::ChatBody(
      {{"stream", true}, {"max_tokens", 400}, {"ignore_eos", true}, {"return_token_ids", true}});
  const std::string alone = served.Ask("POST", "/v1/chat/completions", other.dump()).body;
  RawClient streaming(served.port());
  const std::string text = other.dump();
  streaming.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                 std::to_string(text.size()) + "\r\n\r\n" + text);
  const Json report = Verify(served, greedy);
  ExpectIdentical(report, 200);
  EXPECT_EQ(test::Join(streaming.ReadAnswer().body, 0).ids, test::Join(alone, 0).ids);
}

TEST(Verification, AClientThatLeavesEndsBothRuns) {
  ServedEngine served;
  Json body = Answered(served, {{"ignore_eos", true}, {"max_tokens", 3}});
  for (int i = 0; i < 1500; ++i) body["token_ids"].push_back(5);
  {
    const std::string text = body.dump();
    RawClient client(served.port());
    client.Send("POST /kuiper/verify HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(text.size()) + "\r\n\r\n" + text);
    EXPECT_TRUE(Eventually([&] { return served.PagesHeld() > 0; }));
  }
  EXPECT_TRUE(Eventually([&] { return served.PagesHeld() == 0; }));
  const Json next = Answered(served, {});
  ExpectIdentical(Verify(served, next), next["token_ids"].size());
}

TEST(Verification, PicturesAreSeenAgain) {
  EngineConfig config;
  config.model_path = test::Source("demo/models/tiny-qwen3-vl");
  ServedEngine served(config);
  std::ifstream file(config.model_path + "/samples/circle.png", std::ios::binary);
  const std::string png{std::istreambuf_iterator<char>(file), {}};
  const Json image = {{"type", "image_url"},
                      {"image_url", {{"url", "data:image/png;base64," + test::Base64(png)}}}};
  const Json content = {image, {{"type", "text"}, {"text", "What color is it?"}}};
  for (const double temperature : {0.0, 1.0}) {
    const Json body = Answered(served, {{"messages", {{{"role", "user"}, {"content", content}}}},
                                        {"chat_template_kwargs", nullptr},
                                        {"temperature", temperature}});
    ExpectIdentical(Verify(served, body), body["token_ids"].size());
  }
}

TEST(Verification, BadBodiesAreRefused) {
  ServedEngine served;
  const Json right = Answered(served, {});
  const auto refused = [&](const Json& fields, const std::string& param) {
    Json body = right;
    body.update(fields);
    const auto answer = served.Ask("POST", "/kuiper/verify", body.dump());
    EXPECT_EQ(answer.status, 400) << fields << answer.body;
    EXPECT_EQ(Json::parse(answer.body)["error"]["param"], param) << answer.body;
  };
  refused({{"token_ids", nullptr}}, "token_ids");
  refused({{"token_ids", Json::array()}}, "token_ids");
  refused({{"token_ids", {-1}}}, "token_ids");
  refused({{"prompt_token_ids", "none"}}, "prompt_token_ids");
  refused({{"n", 2}}, "n");
  refused({{"beam_width", 2}}, "beam_width");
  refused({{"seed", -1}, {"temperature", 1}}, "seed");
  refused({{"unheard", 1}}, "unheard");
  EXPECT_EQ(served.Ask("GET", "/kuiper/verify").status, 405);
}

}  // namespace
}  // namespace kuiper
