// Responses over a loopback socket: whole and streamed, single and concurrent, and other routes.
#include "kuiper/server/server.h"

#include <gtest/gtest.h>

#include "test/server/joined_stream.h"
#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::Join;
using test::RawClient;
using test::ServedEngine;
using test::Whole;

TEST(Server, AStreamAddsUpToTheWholeAnswer) {
  ServedEngine served;
  for (const Json& fields :
       {Json::object(), Json{{"n", 3}, {"temperature", 0.9}, {"seed", 5}},
        Json{{"logprobs", true}, {"top_logprobs", 2}}, Json{{"stop", {"5", "."}}},
        Json{{"max_tokens", 3}}, Json{{"chat_template_kwargs", {{"enable_thinking", true}}}},
        Json{{"beam_width", 3}, {"n", 2}}}) {
    Json body = fields;
    body["return_token_ids"] = true;
    const auto whole = served.Chat(body);
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json answer = Json::parse(whole.body);
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const auto stream = served.Chat(body);
    ASSERT_EQ(stream.status, 200) << stream.body;
    EXPECT_NE(stream.head.find("text/event-stream"), std::string::npos);
    for (size_t i = 0; i < answer["choices"].size(); ++i) {
      const Json& choice = answer["choices"][i];
      const Whole joined = Join(stream.body, static_cast<int>(i));
      EXPECT_EQ(joined.text, choice["message"]["content"]) << fields;
      EXPECT_EQ(joined.reasoning, choice["message"].value("reasoning_content", ""));
      EXPECT_EQ(joined.finish, choice["finish_reason"]);
      EXPECT_EQ(Json(joined.ids), choice["token_ids"]);
      EXPECT_EQ(joined.usage["completion_tokens"], answer["usage"]["completion_tokens"]);
      if (!choice["logprobs"].is_null()) {
        EXPECT_EQ(joined.num_logprobs, choice["logprobs"]["content"].size());
        EXPECT_EQ(joined.num_logprobs, joined.ids.size());
        EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
      }
    }
  }
}

// As in vLLM, the ids of a chat's prompt are next to the choices, and the first chunk counts no
// token.
TEST(Server, TheFirstChunkHasThePromptAndNoToken) {
  ServedEngine served;
  const auto stream = served.Chat({{"stream", true},
                                   {"return_token_ids", true},
                                   {"stream_options", {{"continuous_usage_stats", true}}}});
  const std::vector<Json> events = ServedEngine::Events(stream.body);
  ASSERT_GT(events.size(), 2u);
  EXPECT_EQ(events[0]["usage"]["completion_tokens"], 0);
  EXPECT_EQ(events[1]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(events[0]["prompt_token_ids"].size(), events[0]["usage"]["prompt_tokens"]);
  EXPECT_FALSE(events[1].contains("prompt_token_ids"));
  const Json completion = Json::parse(
      served.Ask("POST", "/v1/completions", R"({"prompt": "x", "return_token_ids": true})").body);
  EXPECT_FALSE(completion.contains("prompt_token_ids"));
  EXPECT_EQ(completion["choices"][0]["prompt_token_ids"].size(), 1u);
  EXPECT_LE(completion["usage"]["completion_tokens"], 16) << "OpenAI's default";
}

TEST(Server, AnswersAreThoseOfTheEngine) {
  ServedEngine served;
  const Json prompt = {5, 9, 40, 7, 3, 22, 6, 80};
  Request request;
  for (const Json& id : prompt) request.prompt.push_back(id);
  request.max_new_tokens = 20;
  request.ignore_eos = true;
  EngineConfig config;
  config.model_path = test::Source("demo/models/tiny-qwen3");
  const auto engine = Engine::Create(config);
  ASSERT_TRUE(engine.ok());
  const auto expected = (*engine)->Generate(request);
  ASSERT_TRUE(expected.ok());
  const Json body = {{"prompt", prompt},         {"max_tokens", 20},   {"temperature", 0},
                     {"return_token_ids", true}, {"ignore_eos", true}, {"model", "tiny"}};
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawClient>(served.port()));
    const std::string text = body.dump();
    clients.back()->Send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                         std::to_string(text.size()) + "\r\n\r\n" + text);
  }
  for (const auto& client : clients) {
    const auto answer = client->ReadAnswer();
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(Json::parse(answer.body)["choices"][0]["token_ids"], Json(expected->tokens));
  }
}

TEST(Server, CompletionsOfSeveralPromptsAndEcho) {
  ServedEngine served;
  const Json body = {{"prompt", {"The red", "A small"}},
                     {"n", 2},
                     {"max_tokens", 4},
                     {"temperature", 0},
                     {"echo", true},
                     {"logprobs", nullptr}};
  const auto answer = served.Ask("POST", "/completions", body.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json choices = Json::parse(answer.body)["choices"];
  ASSERT_EQ(choices.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i]["index"], i);
    EXPECT_TRUE(choices[i]["text"].get<std::string>().starts_with(i < 2 ? "The red" : "A small"));
  }
  Json streamed = body;
  streamed["stream"] = true;
  const auto stream = served.Ask("POST", "/completions", streamed.dump());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Join(stream.body, i).text, choices[i]["text"]);
}

TEST(Server, TheNextTurnReusesAllOfTheLast) {
  EngineConfig config;  // the model's template keeps answers unchanged
  config.model_path = test::Source("demo/models/tiny-qwen2.5");
  ServedEngine served(config);
  Json messages = {{{"role", "user"}, {"content", "What is 2 + 3?"}}};
  int known = 0;
  for (int turn = 0; turn < 4; ++turn) {
    const auto answer = served.Chat(
        {{"messages", messages}, {"max_tokens", 40}, {"chat_template_kwargs", nullptr}});
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json json = Json::parse(answer.body);
    const Json& usage = json["usage"];
    EXPECT_GE(usage["prompt_tokens_details"]["cached_tokens"].get<int>(), known / 4 * 4 - 4)
        << "turn " << turn;
    known = usage["total_tokens"].get<int>() - 1;
    messages.push_back(
        {{"role", "assistant"}, {"content", json["choices"][0]["message"]["content"]}});
    messages.push_back({{"role", "user"}, {"content", "And 4 + " + std::to_string(turn) + "?"}});
  }
}

TEST(Server, ASaltKeepsCachesApart) {
  ServedEngine served;
  const auto cached = [&](const Json& fields) {
    return Json::parse(served.Chat(fields).body)["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int>();
  };
  EXPECT_EQ(cached({}), 0);
  EXPECT_GT(cached({}), 0);
  EXPECT_EQ(cached({{"cache_salt", "a"}}), 0);
  EXPECT_GT(cached({{"cache_salt", "a"}}), 0);
  EXPECT_EQ(cached({{"cache_salt", "b"}}), 0);
}

TEST(Server, StopTokensEndAnAnswer) {
  ServedEngine served;
  const Json whole = Json::parse(served.Chat({{"return_token_ids", true}}).body);
  const Json ids = whole["choices"][0]["token_ids"];
  ASSERT_GT(ids.size(), 3u);
  const auto cut = served.Chat({{"return_token_ids", true}, {"stop_token_ids", {ids[2]}}});
  const Json choice = Json::parse(cut.body)["choices"][0];
  EXPECT_LE(choice["token_ids"].size(), 3u);
  EXPECT_EQ(choice["token_ids"].back(), ids[2]);
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(Server, TokensAndTemplates) {
  ServedEngine served;
  const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const Json by_messages =
      Json::parse(served.Ask("POST", "/tokenize", Json{{"messages", messages}}.dump()).body);
  const Json text = Json::parse(
      served.Ask("POST", "/apply-template", Json{{"messages", messages}}.dump()).body)["prompt"];
  const Json by_text = Json::parse(
      served.Ask("POST", "/tokenize", Json{{"content", text}, {"with_pieces", true}}.dump()).body);
  const Json by_prompt = Json::parse(
      served
          .Ask("POST", "/tokenize",
               Json{{"prompt", text}, {"add_special_tokens", true}, {"return_token_strs", true}}
                   .dump())
          .body);
  EXPECT_EQ(by_messages["tokens"], by_prompt["tokens"]);
  EXPECT_EQ(by_messages["count"], by_text["tokens"].size());
  for (size_t i = 0; i < by_text["tokens"].size(); ++i) {
    EXPECT_EQ(by_text["tokens"][i]["id"], by_messages["tokens"][i]);
    EXPECT_EQ(by_text["tokens"][i]["piece"], by_prompt["token_strs"][i]);
  }
  const Json quiet = Json::parse(
      served.Ask("POST", "/apply-template", Json{{"messages", messages}, {"think", false}}.dump())
          .body);
  EXPECT_TRUE(quiet["prompt"].get<std::string>().ends_with("</think>\n\n")) << quiet;
  const Json info = Json::parse(served.Ask("GET", "/tokenizer_info", "").body);
  EXPECT_EQ(info["eos_token"], "<|im_end|>");
  EXPECT_EQ(info["bos_token"], nullptr);
  EXPECT_NE(info["chat_template"].get<std::string>().find("im_start"), std::string::npos);
  const Json back = Json::parse(
      served.Ask("POST", "/v1/detokenize", Json{{"tokens", by_messages["tokens"]}}.dump()).body);
  EXPECT_EQ(back["content"], text);
  for (const char* bad :
       {R"({"tokens": [-1]})", R"({"tokens": [99999999]})", R"({"tokens": 1})", "{"}) {
    EXPECT_EQ(served.Ask("POST", "/detokenize", bad).status, 400) << bad;
  }
  EXPECT_EQ(served.Ask("POST", "/tokenize", "{}").status, 400);
  EXPECT_EQ(served.Ask("POST", "/apply-template", R"({"messages": [], "x": 1})").status, 400);
}

TEST(Server, WhatTheServerSaysOfItself) {
  ServedEngine served;
  const Json model = Json::parse(served.Ask("GET", "/v1/models").body)["data"][0];
  EXPECT_EQ(model["id"], "tiny");
  EXPECT_EQ(model["architecture"]["input_modalities"], Json::array({"text"}));
  EXPECT_EQ(served.Ask("GET", "/v1/models/tiny").status, 200);
  EXPECT_EQ(served.Ask("GET", "/v1/models/huge").status, 404);
  EXPECT_EQ(Json::parse(served.Ask("GET", "/health").body)["status"], "ok");
  EXPECT_EQ(served.Ask("GET", "/ping").status, 200);
  const Json props = Json::parse(served.Ask("GET", "/props").body);
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["tool_calls"], "hermes");
  EXPECT_EQ(props["thinks"], true);
  const Json kv = Json::parse(served.Ask("GET", "/kuiper/kv?once=1").body);
  EXPECT_EQ(kv["blocks"].get<std::string>().size(), kv["num_blocks"]);
  ASSERT_EQ(served.Chat({}).status, 200);
  EXPECT_EQ(
      served.Metric("kuiper:request_success_total{model_name=\"tiny\",finished_reason=\"stop\"}"),
      1);
  EXPECT_GT(served.Metric("kuiper:generation_tokens_total{model_name=\"tiny\"}"), 0);
  EXPECT_EQ(served.Metric("kuiper:num_requests_running{model_name=\"tiny\"}"), 0);
}

TEST(Server, ThePageComesWithoutAKeyAndAsksNoOtherHost) {
  ServerSettings settings;
  settings.access.api_keys = {"secret"};
  ServedEngine served({}, settings, false);
  const auto page = served.Ask("GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("Content-Security-Policy: default-src 'self'"), std::string::npos);
  EXPECT_NE(page.head.find("text/html"), std::string::npos);
  for (const char* path : {"kuiper/page.css", "kuiper/page.js"}) {
    EXPECT_NE(page.body.find(std::string("\"") + path + "\""), std::string::npos);
    const auto part = served.Ask("GET", std::string("/") + path);
    EXPECT_EQ(part.status, 200);
    EXPECT_EQ(part.body.find("http://"), std::string::npos);
    EXPECT_EQ(part.body.find("innerHTML"), std::string::npos);
  }
}

TEST(Server, ThePagesOfARequestCanBeWatched) {
  ServedEngine served;
  RawClient watcher(served.port());
  watcher.Send("GET /kuiper/kv HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_FALSE(watcher.ReadTo("data: ").empty());
  RawClient client(served.port());
  const std::string body =
      ServedEngine::ChatBody({{"stream", true}, {"max_tokens", 100000}, {"ignore_eos", true}})
          .dump();
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_FALSE(client.ReadTo("data: ").empty());
  EXPECT_FALSE(watcher.ReadTo("\"request\":\"mine\"").empty());
  const std::string rest = watcher.ReadTo("\n\n");
  EXPECT_NE(rest.find("\"pages\":["), std::string::npos);
}

}  // namespace
}  // namespace kuiper
