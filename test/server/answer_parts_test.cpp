// Converts engine events with tool calls to parts, then to both API formats, whole and streamed.
#include "kuiper/server/answer_parts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kuiper/server/messages_api.h"
#include "kuiper/server/openai_answer.h"
#include "test/io/fake_tokenizer.h"
#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::ServedEngine;

const char kAnswer[] =
    "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":  1}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

PreparedRequest Prepared(bool parallel = true) {
  PreparedRequest prepared;
  prepared.api.prompts.emplace_back();
  prepared.api.stream = true;
  prepared.api.reads_tool_calls = true;
  prepared.api.parallel_tool_calls = parallel;
  prepared.requests.emplace_back();
  prepared.requests[0].prompt = {1, 2, 3};
  return prepared;
}

// Splits the text into events of `step` bytes; the last one ends the answer.
std::vector<AnswerEvent> EventsOf(const std::string& text, size_t step, FinishReason finish) {
  std::vector<AnswerEvent> events;
  for (size_t at = 0; at < text.size(); at += step) {
    events.emplace_back();
    events.back().token = 0;
    events.back().text = text.substr(at, step);
  }
  Completion completion;
  completion.finish = finish;
  completion.text = text;
  completion.tokens.resize(events.size());
  events.back().completion = completion;
  return events;
}

struct Answer {
  std::string stream;
  Json whole;
};

Answer RunAll(const PreparedRequest& prepared, AnswerWriter& writer,
              const std::vector<AnswerEvent>& events) {
  AnswerParts parts(prepared, ToolCallFormat(), "id");
  Answer answer{writer.Begin(parts), {}};
  for (const AnswerEvent& event : events) answer.stream += writer.OnDelta(parts.Take(event), parts);
  EXPECT_TRUE(parts.is_done());
  answer.stream += writer.End(parts);
  answer.whole = Json::parse(JsonText(writer.Whole(parts)));
  return answer;
}

TEST(AnswerParts, CallsOfChatsWholeAndStreamed) {
  const test::FakeTokenizer tokenizer({"x"});
  for (const size_t step : {1, 7, 1000}) {
    const PreparedRequest prepared = Prepared();
    const auto writer = MakeOpenAiWriter(prepared, {.id = "id"}, tokenizer, ReasoningField::kBoth);
    const Answer answer = RunAll(prepared, *writer, EventsOf(kAnswer, step, FinishReason::kStop));
    const Json& choice = answer.whole["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_EQ(choice["message"]["content"], "Let me see.");
    const Json& calls = choice["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0]["function"], Json::parse(R"({"name": "f", "arguments": "{\"a\":  1}"})"));
    EXPECT_NE(calls[0]["id"], calls[1]["id"]);

    std::string text, finish;
    Json streamed = Json::array();
    for (const Json& event : ServedEngine::Events(answer.stream)) {
      if (!event.is_object()) continue;
      const Json& item = event["choices"][0];
      text += item["delta"].value("content", "");
      if (!item["finish_reason"].is_null()) finish = item["finish_reason"];
      for (Json part : item["delta"].value("tool_calls", Json::array())) {
        const size_t index = part["index"];
        part.erase("index");
        if (index == streamed.size()) {
          streamed.push_back(part);
        } else {
          std::string& arguments = streamed[index]["function"]["arguments"].get_ref<std::string&>();
          arguments += part["function"]["arguments"].get<std::string>();
        }
      }
    }
    EXPECT_EQ(text, "Let me see.");
    EXPECT_EQ(finish, "tool_calls");
    EXPECT_EQ(streamed, calls);
  }
}

TEST(AnswerParts, OneCallWhereSeveralAreNotWanted) {
  const test::FakeTokenizer tokenizer({"x"});
  const PreparedRequest prepared = Prepared(false);
  const auto writer = MakeOpenAiWriter(prepared, {.id = "id"}, tokenizer, ReasoningField::kBoth);
  const Answer answer = RunAll(prepared, *writer, EventsOf(kAnswer, 5, FinishReason::kStop));
  EXPECT_EQ(answer.whole["choices"][0]["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(answer.stream.find("\"g\""), std::string::npos);
}

TEST(AnswerParts, ACutCallStaysText) {
  const test::FakeTokenizer tokenizer({"x"});
  const PreparedRequest prepared = Prepared();
  const auto writer = MakeOpenAiWriter(prepared, {.id = "id"}, tokenizer, ReasoningField::kBoth);
  const std::string cut = std::string(kAnswer).substr(0, 40);
  const Answer answer = RunAll(prepared, *writer, EventsOf(cut, 3, FinishReason::kLength));
  const Json& choice = answer.whole["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["content"], cut);
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
}

TEST(AnswerParts, CallsOfMessagesAreBlocks) {
  const test::FakeTokenizer tokenizer({"x"});
  const PreparedRequest prepared = Prepared();
  const auto writer = MakeMessagesWriter(prepared, {.id = "id"}, tokenizer, ReasoningField::kBoth);
  const Answer answer = RunAll(prepared, *writer, EventsOf(kAnswer, 4, FinishReason::kStop));
  EXPECT_EQ(answer.whole["stop_reason"], "tool_use");
  ASSERT_EQ(answer.whole["content"].size(), 3u);
  EXPECT_EQ(answer.whole["content"][1]["input"], Json::parse(R"({"a": 1})"));
  Json blocks = Json::array();
  for (const Json& event : ServedEngine::Events(answer.stream)) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], blocks.size());
      blocks.push_back(event["content_block"]);
    } else if (event["type"] == "content_block_delta" &&
               event["delta"]["type"] == "input_json_delta") {
      blocks.back()["input"] = Json::parse(event["delta"]["partial_json"].get<std::string>());
    } else if (event["type"] == "content_block_delta") {
      std::string& text = blocks.back()["text"].get_ref<std::string&>();
      text += event["delta"]["text"].get<std::string>();
    }
  }
  EXPECT_EQ(blocks, answer.whole["content"]);
}

}  // namespace
}  // namespace kuiper
