// Tools that a chat template does not show are never dropped silently. Compares public templates
// with the rendering of transformers.
#include <gtest/gtest.h>

#include <string>

#include "kuiper/base/text.h"
#include "kuiper/chat/conversation.h"
#include "test/jinja/render.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using test::Shared;

bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns the name of the first tool or call, "" if there is none.
std::string FirstName(const JsonNode* list) {
  if (list == nullptr || list->items.empty()) return "";
  const JsonNode* function = list->items[0].Find("function");
  return (function == nullptr ? list->items[0] : *function).Find("name")->text;
}

TEST(ToolsShown, PublicTemplatesDropNoToolsWithoutAWord) {
  KU_REQUIRE_SHARED("chat_templates_jinja.json");
  const auto text =
      ReadTextFile(Shared("chat_templates_jinja.json"), size_t{64} << 20, StatusCode::kInput);
  ASSERT_TRUE(text.ok());
  const auto data = ParseJson(*text, StatusCode::kInput, "templates");
  ASSERT_TRUE(data.ok());
  const JsonNode& templates = *data->Find("templates");
  int refused_tools = 0, refused_calls = 0, shown = 0;
  for (size_t i = 0; i < templates.items.size(); ++i) {
    TemplateFiles files = {.name = templates.keys[i],
                           .source = templates.items[i].Find("template")->text};
    const JsonNode& tokens = *data->Find("special_tokens");
    for (size_t k = 0; k < tokens.keys.size(); ++k) {
      files.special_tokens.emplace_back(tokens.keys[k], tokens.items[k].text);
    }
    const auto own = PromptTemplate::Make(files);
    ASSERT_TRUE(own.ok()) << files.name;
    for (const JsonNode& item : data->Find("cases")->items) {
      const std::string& name = item.Find("name")->text;
      const JsonNode* golden = templates.items[i].Find("cases")->Find(name)->Find("text");
      const auto parsed = ParseMessages(item);
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      std::string call;
      for (const Message& message : parsed->messages) {
        if (call.empty() && !message.tool_calls.empty()) call = message.tool_calls[0].name;
      }
      if (golden == nullptr || (parsed->tools_json.empty() && call.empty())) continue;
      Conversation conversation;
      conversation.SetMessages(parsed->messages);
      TemplateOptions options =
          WithMessages({.chat_template = &*own, .now = jinja::GoldenTime()}, *parsed);
      const auto rendered = RenderPrompt(conversation, options);
      const std::string what = files.name + ", " + name;
      const bool no_tools = Holds(rendered.status().message(), "does not show tools");
      const bool no_calls = Holds(rendered.status().message(), "does not show tool_calls");
      EXPECT_TRUE(rendered.ok() || no_tools || no_calls) << what << rendered.status().message();
      const std::string tool = FirstName(item.Find("tools"));
      if (rendered.ok()) {
        ++shown;
        EXPECT_TRUE(Holds(golden->text, tool)) << what << ": the tool is dropped";
        EXPECT_TRUE(Holds(golden->text, call)) << what << ": the call is dropped";
      } else if (no_tools) {
        ++refused_tools;
        EXPECT_FALSE(call.empty() && Holds(golden->text, tool)) << what << golden->text;
      } else {
        ++refused_calls;
        EXPECT_FALSE(tool.empty() && Holds(golden->text, call)) << what << golden->text;
      }
    }
  }
  EXPECT_GT(shown, 100);
  EXPECT_GE(refused_tools, 20);
  EXPECT_GE(refused_calls, 4);
}

}  // namespace
}  // namespace kuiper
