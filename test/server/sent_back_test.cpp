// The server's responses are valid input. The server, message files and chat templates accept each
// format of response as a part of the conversation.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "kuiper/chat/prompt_template.h"
#include "kuiper/io/messages_json.h"
#include "kuiper/server/api_request.h"
#include "kuiper/server/messages_api.h"
#include "kuiper/server/openai_answer.h"
#include "kuiper/server/responses_answer.h"
#include "kuiper/server/responses_api.h"
#include "test/io/fake_tokenizer.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

struct Said {
  std::string reasoning, text;
};

const Said kAnswers[] = {
    {"", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"},
    {"", "See.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"},
    {"why", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"},
    {"why", "Five."},
    {"why", ""},
    {"", ""},
};

// A template as strict as public ones: content must have a length, arguments must be a mapping.
constexpr char kStrict[] =
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}"
    "{% for call in m.tool_calls or [] %}[{{ call.function.name }}"
    "{% for key, value in call.function.arguments.items() %} {{ key }}={{ value }}{% endfor %}]"
    "{% endfor %}\n{% endfor %}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}";

std::vector<PromptTemplate> Templates() {
  std::vector<PromptTemplate> templates;
  for (const char* name : {"qwen2", "qwen3", "qwen3_vl"}) {
    templates.push_back(PromptTemplate::Make({}, name).value());
  }
  templates.push_back(PromptTemplate::Make({.name = "strict", .source = kStrict}).value());
  return templates;
}

// Returns the server's complete response in one of the API formats.
Json Answer(const Said& said, decltype(&MakeOpenAiWriter) make) {
  const test::FakeTokenizer tokenizer({"x"});
  PreparedRequest prepared;
  prepared.api.prompts.emplace_back();
  prepared.api.reads_tool_calls = true;
  prepared.requests.emplace_back();
  prepared.requests[0].prompt = {1, 2, 3};
  AnswerEvent event;
  event.token = 0;
  event.reasoning = said.reasoning;
  event.text = said.text;
  event.completion.emplace();
  event.completion->finish = FinishReason::kStop;
  event.completion->tokens = {0};
  AnswerParts parts(prepared, ToolCallFormat(), "id");
  const auto writer = make(prepared, {.id = "id"}, tokenizer, ReasoningField::kBoth);
  writer->Begin(parts);
  writer->OnDelta(parts.Take(event), parts);
  return Json::parse(JsonText(writer->Whole(parts)));
}

const Json kUser = {{"role", "user"}, {"content", "q"}};

JsonNode Node(const Json& json) {
  return ParseJson(json.dump(), StatusCode::kInput, "body").value();
}

// Expects that the server accepts the chat body.
void ExpectTaken(StatusOr<JsonNode> body, const std::string& what) {
  ASSERT_TRUE(body.ok()) << what << ": " << body.status().message();
  const auto request = ParseApiRequest(std::move(*body), true, {});
  ASSERT_TRUE(request.ok()) << what << ": " << request.status().message();
  ChatOptions options;
  options.tools_json = request->prompts[0].messages.tools_json;
  for (const PromptTemplate& own : Templates()) {
    const auto prompt = own.Render(request->prompts[0].messages.messages, options, LocalTime());
    EXPECT_TRUE(prompt.ok()) << what << ", " << own.name() << ": " << prompt.status().message();
    if (prompt.ok()) {
      EXPECT_EQ(JoinSegments(*prompt).find("None"), std::string::npos);
    }
  }
}

TEST(SentBack, Chats) {
  for (const Said& said : kAnswers) {
    const Json message = Answer(said, MakeOpenAiWriter)["choices"][0]["message"];
    Json messages = {kUser, message};
    if (message.contains("tool_calls")) {
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "r"}});
    }
    messages.push_back(kUser);
    ExpectTaken(Node({{"messages", messages}}), message.dump());
    // Message files and batches accept them too.
    const auto parsed = ParseMessagesJson(messages.dump());
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    for (const PromptTemplate& own : Templates()) {
      const auto prompt = own.Render(parsed->messages, {}, LocalTime());
      EXPECT_TRUE(prompt.ok()) << message << own.name() << ": " << prompt.status().message();
    }
  }
}

TEST(SentBack, Messages) {
  for (const Said& said : kAnswers) {
    const Json answer = Answer(said, MakeMessagesWriter);
    Json messages = {kUser, {{"role", answer["role"]}, {"content", answer["content"]}}};
    Json results = Json::array();
    for (const Json& block : answer["content"]) {
      if (block["type"] != "tool_use") continue;
      results.push_back({{"type", "tool_result"}, {"tool_use_id", block["id"]}, {"content", "r"}});
    }
    if (!results.empty()) messages.push_back({{"role", "user"}, {"content", results}});
    messages.push_back(kUser);
    ExpectTaken(ChatOfMessages(Node({{"max_tokens", 5}, {"messages", messages}})), answer.dump());
  }
}

TEST(SentBack, Responses) {
  for (const Said& said : kAnswers) {
    const Json answer = Answer(said, MakeResponsesWriter);
    Json input = Json::array({kUser});
    for (const Json& item : answer["output"]) {
      input.push_back(item);
      if (item["type"] != "function_call") continue;
      input.push_back(
          {{"type", "function_call_output"}, {"call_id", item["call_id"]}, {"output", "r"}});
    }
    input.push_back(kUser);
    ExpectTaken(ChatOfResponses(Node({{"input", input}})), answer.dump());
  }
}

}  // namespace
}  // namespace kuiper
