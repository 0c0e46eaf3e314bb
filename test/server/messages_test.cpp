// Anthropic's API format: conversion of bodies to chats, and responses over a loopback socket.
#include <gtest/gtest.h>

#include "kuiper/server/messages_api.h"
#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::ServedEngine;

Json ChatOf(const Json& body) {
  auto json = ParseJson(body.dump(), StatusCode::kInput, "body");
  const auto chat = ChatOfMessages(std::move(*json));
  EXPECT_TRUE(chat.ok()) << body << ": " << chat.status().message();
  return chat.ok() ? Json::parse(PythonJson(*chat)) : Json();
}

StatusCode CodeOf(const std::string& text) {
  auto json = ParseJson(text, StatusCode::kInput, "body");
  const auto chat = ChatOfMessages(std::move(*json));
  return chat.status().code();
}

TEST(MessagesApi, BodiesBecomeChats) {
  const Json chat = ChatOf(Json::parse(R"({
    "model": "m", "max_tokens": 5, "stop_sequences": ["x"], "temperature": 0.5,
    "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": " brief"}],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
    "thinking": {"type": "enabled", "budget_tokens": 9},
    "messages": [
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "why", "signature": ""},
        {"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "f", "input": {"k": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"},
        {"type": "text", "text": "and?"}]}]})"));
  const Json expected = Json::parse(R"([
    {"role": "system", "content": "Be brief"}, {"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", "reasoning_content": "why", "tool_calls":
      [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"k": 1}}}]},
    {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "user", "content": "and?"}])");
  EXPECT_EQ(chat["messages"], expected);
  EXPECT_EQ(chat["tools"][0]["function"]["parameters"], Json::parse(R"({"type": "object"})"));
  EXPECT_EQ(chat["stop_sequences"], Json::parse(R"(["x"])"));
  EXPECT_EQ(chat["thinking"], Json::parse(R"({"type": "enabled", "budget_tokens": 9})"));
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  EXPECT_EQ(chat["temperature"], 0.5);
}

TEST(MessagesApi, WrongBodies) {
  const std::string user = R"({"role": "user", "content": "x"})";
  EXPECT_EQ(CodeOf("[]"), StatusCode::kInput);
  EXPECT_EQ(CodeOf(R"({"messages": []})"), StatusCode::kInput) << "max_tokens is asked for";
  for (const std::string rest :
       {R"("messages": 3)", R"("messages": [{"role": "system", "content": "x"}])",
        R"("messages": [{"role": "user"}])", R"("messages": [], "n": 2)",
        R"("messages": [], "system": 3)", R"("messages": [], "tools": 3)"}) {
    EXPECT_EQ(CodeOf(R"({"max_tokens": 1, )" + rest + "}"), StatusCode::kInput) << rest;
  }
  for (const std::string rest :
       {R"("tool_choice": {"type": "any"})", R"("system": [{"type": "image"}])"}) {
    EXPECT_EQ(CodeOf(R"({"max_tokens": 1, "messages": [)" + user + "], " + rest + "}"),
              StatusCode::kUnavailable)
        << rest;
  }
}

// If the last message is the assistant's, the answer continues it.
TEST(MessagesApi, AnswersGoOnFromWhatWasSaid) {
  ServedEngine served;
  Json body = {{"model", "tiny"},
               {"max_tokens", 40},
               {"temperature", 0},
               {"thinking", {{"type", "disabled"}}},
               {"messages", {{{"role", "user"}, {"content", "What is 2 + 3?"}}}}};
  const auto text_of = [&](const Json& asked) {
    const auto [message, events] = served.AskBothWays("/v1/messages", asked);
    EXPECT_EQ(message["content"].size(), 1u) << message;
    return message["content"][0]["text"].get<std::string>();
  };
  const std::string whole = text_of(body);
  ASSERT_EQ(whole, "2 + 3 = 5.");
  body["messages"].push_back({{"role", "assistant"}, {"content", "2 + 3"}});
  EXPECT_EQ("2 + 3" + text_of(body), whole);
  body.erase("thinking");
  EXPECT_EQ("2 + 3" + text_of(body), whole) << "the template closes the thinking";
}

// Agents send these hints without being asked.
TEST(MessagesApi, HintsOfAgentsAreTaken) {
  ServedEngine served;
  Json body = {{"model", "tiny"},
               {"max_tokens", 5},
               {"output_config", {{"effort", "medium"}}},
               {"context_management", {{"edits", {{{"type", "clear_thinking_20251015"}}}}}},
               {"mcp_servers", Json::array()},
               {"metadata", {{"user_id", "u"}}},
               {"messages", {{{"role", "user"}, {"content", "hi"}}}},
               {"tools", {{{"type", "web_search_20250305"}, {"name", "web_search"}}}}};
  const auto answer = served.Ask("POST", "/v1/messages", body.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_NE(answer.head.find("\r\nWarning: 299 - \"the model was not offered these tools, which "
                             "are no functions: web_search_20250305\"\r\n"),
            std::string::npos)
      << answer.head;
  body["thread"] = {{"type", "new"}};
  const Json refused = Json::parse(served.Ask("POST", "/v1/messages", body.dump()).body)["error"];
  EXPECT_EQ(refused["details"]["error_code"], "thread_unsupported_request") << refused;
  body.erase("thread");
  body["output_config"] = {{"format", {{"type", "json_schema"}}}};
  EXPECT_EQ(served.Ask("POST", "/v1/messages", body.dump()).status, 400);
}

TEST(MessagesApi, AStreamAddsUpToTheWholeAnswer) {
  ServedEngine served;
  for (const char* thinking : {"disabled", "enabled"}) {
    const auto [message, events] = served.AskBothWays(
        "/v1/messages", {{"model", "tiny"},
                         {"max_tokens", 60},
                         {"temperature", 0},
                         {"thinking", {{"type", thinking}}},
                         {"messages", {{{"role", "user"}, {"content", "What is 2 + 3?"}}}}});
    ASSERT_GE(events.size(), 4u);
    EXPECT_EQ(events.front()["type"], "message_start");
    EXPECT_EQ(events.back()["type"], "message_stop");
    Json blocks = Json::array();
    for (const Json& event : events) {
      if (event["type"] == "content_block_start") {
        EXPECT_EQ(event["index"], blocks.size());
        blocks.push_back(event["content_block"]);
      } else if (event["type"] == "content_block_delta") {
        const std::string key = event["delta"]["type"] == "text_delta" ? "text" : "thinking";
        blocks.back()[key] =
            blocks.back()[key].get<std::string>() + event["delta"][key].get<std::string>();
      } else if (event["type"] == "message_delta") {
        EXPECT_EQ(event["delta"]["stop_reason"], message["stop_reason"]);
        EXPECT_EQ(event["delta"]["stop_sequence"], nullptr);
        EXPECT_EQ(event["usage"]["output_tokens"], message["usage"]["output_tokens"]);
      }
    }
    EXPECT_EQ(blocks, message["content"]);
  }
  Json body = {{"messages", {{{"role", "user"}, {"content", "What is 2 + 3?"}}}}};
  const Json counted =
      Json::parse(served.Ask("POST", "/v1/messages/count_tokens", body.dump()).body);
  body["max_tokens"] = 1;
  const Json usage = Json::parse(served.Ask("POST", "/v1/messages", body.dump()).body)["usage"];
  EXPECT_EQ(counted["input_tokens"],
            usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>());
  body.update({{"max_tokens", 20}, {"temperature", 0}, {"thinking", {{"type", "disabled"}}}});
  body["stop_sequences"] = {"nothing", "="};
  const auto [stopped, parts] = served.AskBothWays("/v1/messages", body);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "=");
  EXPECT_EQ(parts.at(parts.size() - 2)["delta"]["stop_sequence"], "=");
  const auto bad = served.Ask("POST", "/v1/messages", R"({"messages": []})");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(Json::parse(bad.body)["type"], "error");
}

}  // namespace
}  // namespace kuiper
