// OpenAI's Responses API: conversion of bodies to chats, and responses over a loopback socket.
#include <gtest/gtest.h>

#include "kuiper/server/responses_api.h"
#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::ServedEngine;

StatusOr<JsonNode> Convert(const std::string& text) {
  auto json = ParseJson(text, StatusCode::kInput, "body");
  if (!json.ok()) return json.status();
  return ChatOfResponses(std::move(*json));
}

TEST(ResponsesApi, BodiesBecomeChats) {
  const auto chat = Convert(R"({
    "model": "m", "instructions": "Be brief", "max_output_tokens": 5, "store": false,
    "reasoning": {"effort": "none"}, "include": [], "truncation": "disabled",
    "text": {"format": {"type": "text"}},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}],
    "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
      {"type": "reasoning", "summary": []},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
      {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "1", "output": "r"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  const Json json = Json::parse(PythonJson(*chat));
  const Json expected = Json::parse(R"([
    {"role": "system", "content": "Be brief"}, {"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
      {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "r"}])");
  EXPECT_EQ(json["messages"], expected);
  EXPECT_EQ(json["max_output_tokens"], 5);
  EXPECT_EQ(json["reasoning"]["effort"], "none");
  EXPECT_EQ(json["tools"][0]["function"],
            Json::parse(R"({"name": "f", "parameters": {"type": "object"}})"));
}

TEST(ResponsesApi, WrongBodies) {
  for (const char* bad :
       {"[]", "{}", R"({"input": 3})", R"({"input": "x", "n": 2})",
        R"({"input": "x", "instructions": ["y"]})", R"({"input": "x", "include": ["the.moon"]})",
        R"({"input": "x", "text": {"size": 3}})", R"({"input": [{"role": "user", "content": 3}]})",
        R"({"input": "x", "tools": 3})"}) {
    EXPECT_EQ(Convert(bad).status().code(), StatusCode::kInput) << bad;
  }
  for (const char* undone :
       {R"({"input": "x", "previous_response_id": "r"})", R"({"input": "x", "background": true})",
        R"({"input": [{"type": "item_reference", "id": "x"}]})",
        R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})"}) {
    EXPECT_EQ(Convert(undone).status().code(), StatusCode::kUnavailable) << undone;
  }
}

TEST(ResponsesApi, AStreamAddsUpToTheWholeAnswer) {
  ServedEngine served;
  for (const char* effort : {"none", "high"}) {
    const auto [response, events] =
        served.AskBothWays("/v1/responses", {{"model", "tiny"},
                                             {"input", "What is 2 + 3?"},
                                             {"max_output_tokens", 60},
                                             {"temperature", 0},
                                             {"reasoning", {{"effort", effort}}}});
    ASSERT_GE(events.size(), 4u);
    EXPECT_EQ(events.front()["type"], "response.created");
    std::map<std::string, std::string> texts;  // by kind
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i]["sequence_number"], i);
      if (events[i].contains("delta"))
        texts[events[i]["type"]] += events[i]["delta"].get<std::string>();
    }
    const Json& last = events.back()["response"];
    ASSERT_EQ(last["output"].size(), response["output"].size());
    for (size_t i = 0; i < last["output"].size(); ++i) {
      const Json& item = last["output"][i];
      EXPECT_EQ(item["content"], response["output"][i]["content"]);
      const bool is_message = item["type"] == "message";
      EXPECT_EQ(texts[is_message ? "response.output_text.delta" : "response.reasoning_text.delta"],
                item["content"][0]["text"]);
    }
    EXPECT_EQ(last["status"], response["status"]);
    EXPECT_EQ(last["usage"]["output_tokens"], response["usage"]["output_tokens"]);
    for (const Json& item : response["output"]) {
      const bool is_message = item["type"] == "message";
      EXPECT_TRUE(item["id"].get<std::string>().starts_with(is_message ? "msg_" : "rs_")) << item;
    }
  }
}

TEST(ResponsesApi, LogProbabilitiesAreThoseOfTheText) {
  ServedEngine served;
  for (const char* effort : {"none", "high"}) {
    const auto [response, events] =
        served.AskBothWays("/v1/responses", {{"input", "What is 2 + 3?"},
                                             {"max_output_tokens", 60},
                                             {"temperature", 0},
                                             {"reasoning", {{"effort", effort}}},
                                             {"top_logprobs", 2},
                                             {"include", {"message.output_text.logprobs"}}});
    const Json& part = response["output"].back()["content"][0];
    ASSERT_EQ(part["type"], "output_text");
    std::string text;
    for (const Json& entry : part["logprobs"]) {
      text += entry["token"].get<std::string>();
      EXPECT_LE(entry["logprob"], 0);
      EXPECT_EQ(entry["top_logprobs"].size(), 2u);
    }
    EXPECT_EQ(text, part["text"].get<std::string>() + "<|im_end|>");
    Json told = Json::array();
    for (const Json& event : events) {
      if (event["type"] != "response.output_text.delta") continue;
      for (const Json& entry : event["logprobs"]) told.push_back(entry);
    }
    ASSERT_EQ(told.size() + 1, part["logprobs"].size());
    for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], part["logprobs"][i]);
  }
  const Json none = Json::parse(
      served.Ask("POST", "/v1/responses", R"({"input": "hi", "max_output_tokens": 3})").body);
  for (const Json& item : none["output"]) {
    if (item["type"] != "message") continue;
    EXPECT_EQ(item["content"][0]["logprobs"], Json::array());
  }
}

// A body like those of a coding agent.
TEST(ResponsesApi, BodiesOfAgentsAreTaken) {
  ServedEngine served;
  Json body = Json::parse(R"({
    "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "s"}]},
              {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    "tools": [{"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": false},
              {"type": "custom", "name": "apply_patch"}, {"type": "web_search"}],
    "tool_choice": "auto", "parallel_tool_calls": false, "store": false, "stream": false,
    "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": {"a": "b"},
    "text": {"verbosity": "medium"}, "reasoning": {"effort": "medium", "summary": "auto"},
    "prompt_cache_retention": "24h", "truncation": "auto"})");
  const Json counted =
      Json::parse(served.Ask("POST", "/v1/responses/input_tokens", body.dump()).body);
  EXPECT_EQ(counted["object"], "response.input_tokens");
  body["max_output_tokens"] = 5;
  const auto answer = served.Ask("POST", "/v1/responses", body.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_NE(answer.head.find("no functions: custom, web_search\""), std::string::npos)
      << answer.head;
  EXPECT_EQ(Json::parse(answer.body)["usage"]["input_tokens"], counted["input_tokens"]);
}

}  // namespace
}  // namespace kuiper
