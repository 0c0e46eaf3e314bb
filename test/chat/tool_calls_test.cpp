#include "kuiper/chat/tool_calls.h"

#include <gtest/gtest.h>

#include "test/chat/tool_call_pieces.h"

namespace kuiper {
namespace {

using Calls = std::vector<ParsedToolCall>;
constexpr ToolCallFormat::Kind kHermes = ToolCallFormat::Kind::kHermes,
                               kXml = ToolCallFormat::Kind::kXml;

// Parses the text whole, byte by byte, and cut in two at every position.
void Expect(ToolCallFormat::Kind kind, const std::string& text, const std::string& rest,
            const Calls& calls) {
  std::vector<std::vector<std::string_view>> ways = {{text}, {}};
  for (const char& c : text) ways[1].emplace_back(&c, 1);
  for (size_t i = 1; i < text.size(); ++i) {
    ways.push_back({std::string_view(text).substr(0, i), std::string_view(text).substr(i)});
  }
  for (const auto& way : ways) {
    const ToolCallParser::Delta found = test::ParseCalls(kind, way);
    ASSERT_EQ(found.text, rest) << text << " cut behind " << way[0];
    ASSERT_EQ(found.calls, calls) << text << " cut behind " << way[0];
  }
}

std::string Call(const std::string& block) {
  return "<tool_call>\n" + block + "\n</tool_call>";
}

TEST(ToolCalls, HermesArgumentsAreTheModelsOwnText) {
  Expect(kHermes, Call(R"({"name": "f", "arguments": {"a": 1,  "b": [ ]}})"), "",
         {{"f", R"({"a": 1,  "b": [ ]})"}});
  Expect(kHermes, Call(R"({"arguments": {}, "name": "f"})"), "", {{"f", "{}"}});
  Expect(kHermes, Call(R"({"name": "f"})"), "", {{"f", "{}"}});
  Expect(kHermes, Call(R"({"name": "f", "arguments": "{\"a\": 1}"})"), "", {{"f", R"({"a": 1})"}});
  Expect(kHermes, Call(R"({"na\"me:": {"arguments": 3}, "name": "f", "parameters": {"x": "}"}})"),
         "", {{"f", R"({"x": "}"})"}});
}

TEST(ToolCalls, SeveralCallsWithTextAroundThem) {
  const std::string f = Call(R"({"name": "f", "arguments": {}})");
  const std::string g = Call(R"({"name": "g", "arguments": {}})");
  Expect(kHermes, "I look.\n\n" + f + "\n" + g, "I look.", {{"f", "{}"}, {"g", "{}"}});
  Expect(kHermes, f + " then " + g + " done \n", "thendone \n", {{"f", "{}"}, {"g", "{}"}});
  Expect(kHermes, "just text\n\nand more ", "just text\n\nand more ", {});
  Expect(kHermes, "", "", {});
  Expect(kHermes, " \n", " \n", {});
}

TEST(ToolCalls, ClosingTagsInsideOfStrings) {
  Expect(kHermes, Call(R"({"name": "f", "arguments": {"a": "</tool_call>"}})"), "",
         {{"f", R"({"a": "</tool_call>"})"}});
  Expect(kXml,
         Call("<function=f>\n<parameter=s>\n</parameter> </tool_call>\n</parameter>\n</function>"),
         "", {{"f", R"({"s": "</parameter> </tool_call>"})"}});
}

TEST(ToolCalls, WhatIsNoCallStaysText) {
  const std::string good = Call(R"({"name": "f", "arguments": {}})");
  for (const std::string block :
       {"nothing", R"({"name": ""})", R"({"name": "f", "arguments": 3})", R"({"arguments": {}})",
        R"({"name": "f", "arguments": {})", "[1]"}) {
    Expect(kHermes, "a " + Call(block) + "\n" + good, "a " + Call(block), {{"f", "{}"}});
    Expect(kHermes, Call(block), Call(block), {});
  }
  // A call cut off by the token limit stays text.
  const std::string cut = "<tool_call>\n{\"name\": \"f\", \"argu";
  Expect(kHermes, "x " + cut, "x " + cut, {});
  Expect(kHermes, "x <tool_", "x <tool_", {});
  // Complete except for the closing tag, which some models omit.
  Expect(kHermes, "<tool_call>\n{\"name\": \"f\"}\n", "", {{"f", "{}"}});
}

TEST(ToolCalls, ManyClosingTagsEndTheSearch) {
  std::string text = "<tool_call>\n{\"a\": \"";
  for (int i = 0; i < 200; ++i) text += "</tool_call>";
  const auto found = test::ParseCalls(kHermes, {text});
  EXPECT_EQ(found.text, text);
  EXPECT_TRUE(found.calls.empty());
}

TEST(ToolCalls, XmlValuesAreStringsWhereTheSchemaSaysSo) {
  Expect(kXml,
         Call("<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n"
              "<parameter=l>\n[1, \"a\"]\n</parameter>\n<parameter=t>\nnot JSON\n</parameter>\n"
              "</function>"),
         "", {{"f", R"({"s": "12", "n": 12, "l": [1, "a"], "t": "not JSON"})"}});
  Expect(kXml,
         Call("<function=f>\n<parameter=s>null</parameter>\n<parameter=o>null</parameter>\n"
              "</function>\n"),
         "", {{"f", R"({"s": "null", "o": null})"}});
  Expect(kXml, Call("<function=f>\n<parameter=o>12</parameter>\n</function>"), "",
         {{"f", R"({"o": "12"})"}});
  Expect(kXml, Call("<function=g>\n<parameter=n>\n12\n</parameter>\n</function>"), "",
         {{"g", R"({"n": "12"})"}});
  Expect(kXml, Call("<function=f>\n</function>"), "", {{"f", "{}"}});
  Expect(kXml, Call("<function=f>\n<parameter=s>\n\n two\nlines \n\n</parameter>\n</function>"), "",
         {{"f", R"({"s": "\n two\nlines \n"})"}});
  for (const char* block : {"<function=f>", "<function=f>x</function>", "<function=></function>",
                            "<function=f><parameter=a></function>"}) {
    Expect(kXml, Call(block), Call(block), {});
  }
}

TEST(ToolCalls, TheFormIsFoundInTheTemplatesCall) {
  const auto hermes =
      FindToolCallFormat(R"(<tool_call>{"name": "f"}</tool_call>)", "<tool_call>", "</tool_call>");
  ASSERT_TRUE(hermes.has_value());
  EXPECT_EQ(hermes->kind, kHermes);
  const auto xml = FindToolCallFormat("<a><function=f></function></a>", "<a>", "</a>");
  ASSERT_TRUE(xml.has_value());
  EXPECT_EQ(xml->kind, kXml);
  EXPECT_EQ(xml->close, "</a>");
  EXPECT_FALSE(FindToolCallFormat("[f(a=1)]", "", "").has_value());
  EXPECT_FALSE(FindToolCallFormat("<x>f(a=1)</x>", "<x>", "</x>").has_value());
  EXPECT_FALSE(FindToolCallFormat("", "", "").has_value());
}

TEST(ToolCalls, StringParametersComeFromTheSchema) {
  const auto tools = ParseJson(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"s": {"type": "string"}, "n": {"type": "integer"}, "x": {},
                         "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                         "list": {"type": ["null", "string"]}, "words": {"enum": ["a", "b"]},
                         "or": {"anyOf": [{"type": "string"}, {"type": "array"}]},
                         "mixed": {"enum": ["a", 1]}, "ref": {"$ref": "#/x"},
                         "no": {"oneOf": [{"type": "integer"}, {"enum": [1, null]}]}}}}},
          {"name": "g"}, {"function": {"name": 3}}])",
      StatusCode::kInput, "tools");
  ASSERT_TRUE(tools.ok());
  EXPECT_EQ(StringParametersOf(*tools), (StringParameters{{"f",
                                                           {{"s", StringKind::kAlways},
                                                            {"any", StringKind::kOrNull},
                                                            {"list", StringKind::kOrNull},
                                                            {"words", StringKind::kAlways}}},
                                                          {"g", {}}}));
}

}  // namespace
}  // namespace kuiper
