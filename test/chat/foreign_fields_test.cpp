#include "kuiper/chat/foreign_fields.h"

#include <gtest/gtest.h>

#include <regex>

#include "kuiper/base/text.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

StatusCode CodeOf(const std::string& name, const std::string& value) {
  const auto node = ParseJson(value, StatusCode::kInternal, "test");
  EXPECT_TRUE(node.ok()) << value;
  return CheckForeignField(name, *node, {"temperature", "top_k"}).code();
}

TEST(ForeignFields, AnyNameMayAskForNothing) {
  for (const char* nothing : {"null", "false", "0", "0.0", "\"\"", "[]", "{}"}) {
    EXPECT_EQ(CodeOf("who_knows", nothing), StatusCode::kOk) << nothing;
    EXPECT_EQ(CodeOf("top_m", nothing) == StatusCode::kOk, nothing == std::string("null"))
        << "top_k was meant: " << nothing;
  }
  for (const char* something : {"true", "1", "-1", "0.5", "\"a\"", "[0]", "{\"a\": null}"}) {
    EXPECT_EQ(CodeOf("who_knows", something), StatusCode::kInput) << something;
  }
}

TEST(ForeignFields, OptionsHaveNeutralValues) {
  EXPECT_EQ(CodeOf("typical_p", "1.0"), StatusCode::kOk);
  EXPECT_EQ(CodeOf("typical_p", "0"), StatusCode::kUnavailable) << "it switches all tokens off";
  EXPECT_EQ(CodeOf("modalities", "[\"text\"]"), StatusCode::kOk);
  EXPECT_EQ(CodeOf("modalities", "[\"text\", \"audio\"]"), StatusCode::kUnavailable);
  EXPECT_EQ(CodeOf("verbosity", "\"low\""), StatusCode::kOk);
  EXPECT_EQ(CodeOf("verbosity", "\"nonsense\""), StatusCode::kUnavailable);
  EXPECT_EQ(CodeOf("skip_special_tokens", "false"), StatusCode::kUnavailable);
}

TEST(ForeignFields, HintsHaveTypes) {
  EXPECT_EQ(CodeOf("metadata", "{\"a\": \"b\"}"), StatusCode::kOk);
  EXPECT_EQ(CodeOf("metadata", "\"x\""), StatusCode::kInput);
  EXPECT_EQ(CodeOf("store", "\"no\""), StatusCode::kInput);
  EXPECT_EQ(CodeOf("service_tier", "5"), StatusCode::kInput);
  EXPECT_EQ(CodeOf("id_slot", "-1"), StatusCode::kOk);
  EXPECT_EQ(CodeOf("prompt_cache_retention", "\"24h\""), StatusCode::kOk);
}

// The table of docs/server.md, whose rows are "| `name`, `name` | `value`, `value` |".
TEST(ForeignFields, TheDocumentedValuesAreNeutral) {
  const auto text =
      ReadTextFile(test::Source("docs/server.md"), size_t{1} << 20, StatusCode::kInput);
  ASSERT_TRUE(text.ok());
  const size_t begin = text->find("| option | neutral |");
  ASSERT_NE(begin, std::string::npos);
  const std::string table = text->substr(begin, text->find("\n\n", begin) - begin);
  const std::regex row(R"(\n\| (`.*`) \| (`.*`) \|)"), quoted("`([^`]*)`");
  const std::sregex_iterator end;
  int num_names = 0;
  for (std::sregex_iterator line(table.begin(), table.end(), row); line != end; ++line) {
    const std::string names = (*line)[1], values = (*line)[2];
    for (std::sregex_iterator name(names.begin(), names.end(), quoted); name != end; ++name) {
      ++num_names;
      for (std::sregex_iterator value(values.begin(), values.end(), quoted); value != end;
           ++value) {
        EXPECT_EQ(CodeOf((*name)[1], (*value)[1]), StatusCode::kOk) << (*name)[1] << (*value)[1];
      }
      EXPECT_EQ(CodeOf((*name)[1], "\"other\""), StatusCode::kUnavailable) << (*name)[1];
    }
  }
  EXPECT_GT(num_names, 30);
}

}  // namespace
}  // namespace kuiper
