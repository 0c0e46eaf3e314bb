// Compares renderings of public chat templates, twenty conversations each, with those of
// transformers' own Jinja environment (made with tools of the shared data set).
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/jinja/template.h"
#include "test/jinja/render.h"
#include "test/test_data.h"

namespace kuiper::jinja {
namespace {

constexpr char kFile[] = "chat_templates_jinja.json";

class GoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    KU_REQUIRE_SHARED(kFile);
    const auto text = ReadTextFile(test::Shared(kFile), size_t{64} << 20, StatusCode::kInput);
    ASSERT_TRUE(text.ok()) << text.status().message();
    auto json = ParseJson(*text, StatusCode::kInput, kFile);
    ASSERT_TRUE(json.ok()) << json.status().message();
    data_ = std::move(*json);
  }

  // Returns the variables of a case, as the script that made the goldens passes them.
  JsonNode Variables(const JsonNode& item) const {
    JsonNode variables = item;
    const auto add = [&](const std::string& key, const JsonNode& value) {
      if (variables.Find(key) != nullptr) return;
      variables.keys.push_back(key);
      variables.items.push_back(value);
    };
    add("add_generation_prompt", {.type = JsonNode::Type::kBool, .boolean = true});
    add("tools", {});
    add("documents", {});
    const JsonNode& tokens = *data_.Find("special_tokens");
    for (size_t i = 0; i < tokens.keys.size(); ++i) add(tokens.keys[i], tokens.items[i]);
    return variables;
  }

  JsonNode data_;
};

TEST_F(GoldenTest, EveryTemplateRendersAsTransformersDoes) {
  const JsonNode& templates = *data_.Find("templates");
  const JsonNode& cases = *data_.Find("cases");
  ASSERT_EQ(templates.items.size(), 51u);
  int texts = 0, refusals = 0, errors = 0;
  for (size_t t = 0; t < templates.items.size(); ++t) {
    const std::string& name = templates.keys[t];
    const auto parsed = Template::Parse(templates.items[t].Find("template")->text);
    ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.status().message();
    for (const JsonNode& item : cases.items) {
      const std::string& label = item.Find("name")->text;
      const JsonNode& golden = *templates.items[t].Find("cases")->Find(label);
      const Outcome outcome = Render(*parsed, Variables(item));
      const JsonNode* error = golden.Find("error");
      if (error == nullptr) {
        EXPECT_TRUE(outcome.status.ok())
            << name << ", " << label << ": " << outcome.status.message();
        EXPECT_EQ(outcome.rendered.text, golden.Find("text")->text) << name << ", " << label;
        ++texts;
        continue;
      }
      constexpr std::string_view kByTemplate = "TemplateError: ";
      EXPECT_FALSE(outcome.status.ok()) << name << ", " << label << ": " << error->text;
      if (error->text.starts_with(kByTemplate)) {
        EXPECT_TRUE(outcome.refusal.by_template) << name << ", " << label;
        EXPECT_EQ(outcome.refusal.words, error->text.substr(kByTemplate.size()));
        ++refusals;
      } else {
        EXPECT_FALSE(outcome.refusal.by_template) << name << ", " << label;
        EXPECT_TRUE(outcome.status.message().starts_with("chat template, line "))
            << outcome.status.message();
        ++errors;
      }
    }
  }
  EXPECT_EQ(texts + refusals + errors, 51 * 20);
  EXPECT_GT(texts, 900);
  EXPECT_EQ(refusals, 12);
}

// The runs cover the text, and none of them is empty.
TEST_F(GoldenTest, RunsCoverTheText) {
  for (const JsonNode& entry : data_.Find("templates")->items) {
    const auto parsed = Template::Parse(entry.Find("template")->text);
    ASSERT_TRUE(parsed.ok());
    for (const JsonNode& item : data_.Find("cases")->items) {
      const Outcome outcome = Render(*parsed, Variables(item));
      if (!outcome.status.ok()) continue;
      size_t total = 0;
      for (const jinja::Run& run : outcome.rendered.runs) {
        EXPECT_GT(run.length, 0u);
        total += run.length;
      }
      EXPECT_EQ(total, outcome.rendered.text.size());
    }
  }
}

TEST_F(GoldenTest, FiftyTurnsTakeLittleTime) {
  const JsonNode* entry = data_.Find("templates")->Find("Qwen-Qwen3-0.6B.jinja");
  ASSERT_NE(entry, nullptr);
  const auto parsed = Template::Parse(entry->Find("template")->text);
  ASSERT_TRUE(parsed.ok());
  JsonNode messages{.type = JsonNode::Type::kArray};
  for (int i = 0; i < 100; ++i) {
    const char* role = i % 2 == 0 ? "user" : "assistant";
    const JsonNode message{.type = JsonNode::Type::kObject,
                           .items = {{.type = JsonNode::Type::kString, .text = role},
                                     {.type = JsonNode::Type::kString,
                                      .text = std::string(200, static_cast<char>('a' + i % 26))}},
                           .keys = {"role", "content"}};
    messages.items.push_back(message);
  }
  const JsonNode variables{.type = JsonNode::Type::kObject,
                           .items = {messages, {.type = JsonNode::Type::kBool, .boolean = true}},
                           .keys = {"messages", "add_generation_prompt"}};
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = Render(*parsed, variables);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_GT(outcome.rendered.text.size(), 20000u);
    best = std::min(best, took.count());
  }
  RecordProperty("best_us", static_cast<int>(best * 1000));
  std::printf("50 turns of 200 bytes: %.0f us\n", best * 1000);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(best, 1.0);
#endif
}

}  // namespace
}  // namespace kuiper::jinja
