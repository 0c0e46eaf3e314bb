// Compares renderings of small templates with transformers' Jinja environment
// (tools/make_jinja_goldens.py).
#include <gtest/gtest.h>

#include <string>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/jinja/template.h"
#include "test/jinja/render.h"
#include "test/test_data.h"

namespace kuiper::jinja {
namespace {

TEST(LanguageTest, EqualsTransformers) {
  const std::string path = test::Source("test/data/jinja_language.json");
  const auto text = ReadTextFile(path, size_t{16} << 20, StatusCode::kInput);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const auto data = ParseJson(*text, StatusCode::kInput, path);
  ASSERT_TRUE(data.ok()) << data.status().message();
  const JsonNode& variables = *data->Find("variables");
  int texts = 0, errors = 0;
  for (const JsonNode& item : data->Find("cases")->items) {
    const std::string& source = item.Find("template")->text;
    const JsonNode* error = item.Find("error");
    const auto parsed = Template::Parse(source);
    Outcome outcome;
    if (parsed.ok()) {
      outcome = Render(*parsed, variables);
    } else {
      outcome.status = parsed.status();
    }
    if (error == nullptr) {
      ++texts;
      EXPECT_TRUE(outcome.status.ok()) << source << ": " << outcome.status.message();
      EXPECT_EQ(outcome.rendered.text, item.Find("text")->text) << source;
      continue;
    }
    ++errors;
    EXPECT_FALSE(outcome.status.ok())
        << source << ": " << error->text << "\nbut rendered " << outcome.rendered.text;
    const bool refused = error->text.starts_with("TemplateError: ");
    EXPECT_EQ(outcome.refusal.by_template, refused) << source;
    if (!refused) {
      EXPECT_NE(outcome.status.message().find("line 1, column "), std::string::npos)
          << outcome.status.message();
    }
  }
  EXPECT_GT(texts, 500);
  EXPECT_GT(errors, 50);
}

}  // namespace
}  // namespace kuiper::jinja
