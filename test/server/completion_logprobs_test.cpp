// Completions that echo their prompt with log probabilities, as evaluation programs request them.
// Also prompt_logprobs in vLLM's format, logit biases and minimum lengths over HTTP.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::ServedEngine;

constexpr char kPath[] = "/v1/completions";
constexpr char kText[] = "The red cät 你好 😀 of a town";

// Returns the engine's own log probabilities of the prompt, without a prefix cache hit.
std::vector<TokenLogprobs> Scores(const std::vector<int32_t>& prompt, int num_top) {
  EngineConfig config;
  config.model_path = test::Source("demo/models/tiny-qwen3");
  config.prompt_rows = 64;
  const auto engine = Engine::Create(config);
  EXPECT_TRUE(engine.ok());
  Request request;
  request.prompt = prompt;
  request.max_new_tokens = 0;
  request.num_prompt_logprobs = num_top;
  return (*engine)->Generate(request)->prompt_logprobs;
}

Json Ask(ServedEngine& served, const Json& body) {
  const auto answer = served.Ask("POST", kPath, body.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  return Json::parse(answer.body);
}

std::vector<int32_t> Tokenized(ServedEngine& served, const std::string& text) {
  const auto answer = served.Ask("POST", "/tokenize", Json{{"content", text}}.dump());
  return Json::parse(answer.body)["tokens"].get<std::vector<int32_t>>();
}

// Returns the byte offsets of the characters, and that of the end.
std::vector<size_t> CharactersOf(const std::string& text) {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) != 0x80) places.push_back(i);
  }
  places.push_back(text.size());
  return places;
}

// lm-eval-harness's local-completions sends this request for a continuation's likelihood.
TEST(CompletionLogprobs, APromptIsScoredAsHarnessesAsk) {
  ServedEngine served;
  const std::vector<int32_t> one = Tokenized(served, kText), two = Tokenized(served, "A small");
  const Json body = {{"model", "tiny"}, {"prompt", {one, two}}, {"temperature", 0},
                     {"max_tokens", 1}, {"logprobs", 1},        {"seed", 1234},
                     {"echo", true}};
  for (const bool is_cached : {false, true}) {
    const Json answer = Ask(served, body);
    ASSERT_EQ(answer["choices"].size(), 2u) << is_cached;
    for (const auto& [prompt, choice] :
         {std::pair(one, answer["choices"][0]), std::pair(two, answer["choices"][1])}) {
      const Json& lists = choice["logprobs"];
      const std::vector<TokenLogprobs> expected = Scores(prompt, 1);
      ASSERT_EQ(lists["tokens"].size(), prompt.size() + 1);
      for (const char* key : {"token_logprobs", "top_logprobs", "text_offset"}) {
        ASSERT_EQ(lists[key].size(), prompt.size() + 1) << key;
      }
      EXPECT_TRUE(lists["token_logprobs"][0].is_null());
      EXPECT_TRUE(lists["top_logprobs"][0].is_null());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(lists["token_logprobs"][i + 1].get<float>(), expected[i].chosen) << i;
        float best = -1e9f;
        for (const auto& [token, logprob] : lists["top_logprobs"][i + 1].items()) {
          best = std::max(best, logprob.get<float>());
        }
        EXPECT_EQ(best, expected[i].top[0].second) << i;
      }
    }
    EXPECT_EQ(answer["usage"]["completion_tokens"], 2);
  }
}

TEST(CompletionLogprobs, PlacesAreThoseOfTheText) {
  ServedEngine served;
  for (const bool as_ids : {false, true}) {
    Json body = {
        {"prompt", kText}, {"max_tokens", 6}, {"temperature", 0}, {"logprobs", 2}, {"echo", true}};
    if (as_ids) body["prompt"] = Tokenized(served, kText);
    const Json choice = Ask(served, body)["choices"][0];
    const std::string text = choice["text"];
    EXPECT_TRUE(text.starts_with(kText));
    const std::vector<size_t> characters = CharactersOf(text);
    const Json& lists = choice["logprobs"];
    int num_parts = 0;  // tokens that hold only a part of a character
    size_t before = 0;
    for (size_t i = 0; i < lists["tokens"].size(); ++i) {
      const std::string token = lists["tokens"][i];
      const size_t place = lists["text_offset"][i];
      EXPECT_GE(place, before);
      before = place;
      ASSERT_LT(place, characters.size());
      if (token.starts_with("bytes:")) {
        ++num_parts;
      } else if (!token.starts_with("<|")) {
        EXPECT_EQ(text.compare(characters[place], token.size(), token), 0) << token;
      }
    }
    EXPECT_GT(num_parts, 0) << "no character of several tokens";
  }
}

TEST(CompletionLogprobs, ZeroTokensScoreThePromptAlone) {
  ServedEngine served;
  const std::vector<int32_t> prompt = Tokenized(served, kText);
  Json body = {{"prompt", kText}, {"max_tokens", 0}, {"logprobs", 0}, {"echo", true}, {"n", 2}};
  const Json answer = Ask(served, body);
  ASSERT_EQ(answer["choices"].size(), 2u);
  for (const Json& choice : answer["choices"]) {
    EXPECT_EQ(choice["text"], kText);
    EXPECT_EQ(choice["finish_reason"], "length");
    ASSERT_EQ(choice["logprobs"]["tokens"].size(), prompt.size());
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][1].size(), 1u) << "the token itself";
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  body.erase("logprobs");
  EXPECT_EQ(Ask(served, body)["choices"][0]["text"], kText);
  body.erase("echo");
  EXPECT_EQ(served.Ask("POST", kPath, body.dump()).status, 400) << "nothing is asked for";
}

TEST(CompletionLogprobs, AStreamAddsUpToTheWholeAnswer) {
  ServedEngine served;
  for (const Json& fields :
       {Json{{"echo", true}}, Json{{"echo", true}, {"max_tokens", 0}}, Json{{"echo", false}},
        Json{{"echo", true}, {"n", 2}, {"temperature", 0.8}, {"seed", 3}}}) {
    Json body = {{"prompt", {kText, "A"}}, {"max_tokens", 5}, {"temperature", 0}, {"logprobs", 2}};
    body.update(fields);
    const ServedEngine::BothWays both = served.AskBothWays(kPath, body);
    for (const Json& choice : both.whole["choices"]) {
      std::string text;
      Json lists = {{"tokens", Json::array()},
                    {"token_logprobs", Json::array()},
                    {"top_logprobs", Json::array()},
                    {"text_offset", Json::array()}};
      for (const Json& event : both.events) {
        if (!event.is_object() || event["choices"].empty()) continue;
        const Json& item = event["choices"][0];
        if (item["index"] != choice["index"]) continue;
        text += item["text"];
        if (item["logprobs"].is_null()) continue;
        for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
          for (const Json& entry : item["logprobs"][key]) lists[key].push_back(entry);
        }
      }
      EXPECT_EQ(text, choice["text"]) << fields;
      EXPECT_EQ(lists, choice["logprobs"]) << fields;
    }
  }
}

TEST(CompletionLogprobs, PromptsInTheFormOfVllm) {
  ServedEngine served;
  const std::vector<int32_t> prompt = Tokenized(served, kText);
  const std::vector<TokenLogprobs> expected = Scores(prompt, 2);
  const Json body = {
      {"prompt", prompt}, {"max_tokens", 1}, {"temperature", 0}, {"prompt_logprobs", 2}};
  const Json list = Ask(served, body)["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(list.size(), prompt.size());
  EXPECT_TRUE(list[0].is_null());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Json& own = list[i + 1].at(std::to_string(prompt[i + 1]));
    EXPECT_EQ(own["logprob"].get<float>(), expected[i].chosen);
    EXPECT_EQ(own["rank"], expected[i].rank);
    for (int k = 0; k < 2; ++k) {
      const auto& [id, logprob] = expected[i].top[k];
      EXPECT_EQ(list[i + 1].at(std::to_string(id))["rank"], k + 1);
      EXPECT_EQ(list[i + 1].at(std::to_string(id))["logprob"].get<float>(), logprob);
    }
    EXPECT_EQ(list[i + 1].size(), expected[i].rank <= 2 ? 2u : 3u);
  }
  const Json chat = Json::parse(served.Chat({{"prompt_logprobs", 0}}).body);
  EXPECT_EQ(chat["prompt_logprobs"].size(), chat["usage"]["prompt_tokens"]);
  EXPECT_EQ(chat["prompt_logprobs"][1].size(), 1u);
}

TEST(LogitBias, ForcesAndRulesOutTokensOverHttp) {
  ServedEngine served;
  const Json forced = {{"prompt", kText},
                       {"max_tokens", 4},
                       {"temperature", 0.7},
                       {"return_token_ids", true},
                       {"logit_bias", {{"42", 100}}}};
  const Json ids = Ask(served, forced)["choices"][0]["token_ids"];
  EXPECT_EQ(ids, Json({42, 42, 42, 42}));
  Json plain = ServedEngine::ChatBody({{"return_token_ids", true}});
  const auto ask = [&] {
    return Json::parse(served.Ask("POST", "/v1/chat/completions", plain.dump()).body)["choices"][0];
  };
  const Json before = ask();
  EXPECT_EQ(before["finish_reason"], "stop");
  plain["min_tokens"] = 24;
  const Json longer = ask();
  EXPECT_EQ(longer["finish_reason"], "length");
  EXPECT_EQ(longer["token_ids"].size(), 24u);
  const size_t shared = before["token_ids"].size() - 1;
  for (size_t i = 0; i < shared; ++i) EXPECT_EQ(longer["token_ids"][i], before["token_ids"][i]);
  const auto refused = served.Chat({{"logit_bias", {{"999999", 1}}}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("999999"), std::string::npos) << refused.body;
}

}  // namespace
}  // namespace kuiper
