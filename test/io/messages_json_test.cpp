#include "kuiper/io/messages_json.h"

#include <gtest/gtest.h>

#include <string>

namespace kuiper {
namespace {

TEST(MessagesJson, ReadsAListOfMessages) {
  const auto parsed = ParseMessagesJson(
      R"([{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},
          {"type":"image","image":"x.png"},{"type":"image_url","image_url":{"url":"y.png"}},
          {"type":"text","text":"b"}]}])");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->messages.size(), 2u);
  EXPECT_EQ(parsed->messages[0].role, Role::kSystem);
  const Message& user = parsed->messages[1];
  EXPECT_EQ(user.text, "ab");
  ASSERT_EQ(user.parts.size(), 4u);
  EXPECT_EQ(user.parts[1].kind, ContentPart::Kind::kImage);
  EXPECT_EQ(user.parts[1].text, "x.png");
  EXPECT_EQ(user.parts[2].text, "y.png");
  EXPECT_FALSE(parsed->enable_thinking.has_value());
}

TEST(MessagesJson, ReadsARequestObject) {
  const auto parsed = ParseMessagesJson(
      R"({"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,
          "reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":
          {"name":"f","arguments":{"b":1,"a":[1.0,null]}}}]},{"role":"tool","content":"t"}],
          "tools":[{"name":"f"}],"chat_template_kwargs":{"enable_thinking":false}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const Message& assistant = parsed->messages[1];
  EXPECT_EQ(assistant.reasoning, "r");
  ASSERT_EQ(assistant.tool_calls.size(), 1u);
  EXPECT_EQ(assistant.tool_calls[0].arguments_json, R"({"b": 1, "a": [1.0, null]})");
  EXPECT_FALSE(assistant.tool_calls[0].arguments_are_text);
  EXPECT_EQ(parsed->tools_json, std::vector<std::string>{R"({"name": "f"})"});
  EXPECT_EQ(parsed->enable_thinking, false);
}

TEST(MessagesJson, ErrorsSayWhatAndWhere) {
  const struct {
    const char *json, *message;
  } cases[] = {
      {"", "messages: invalid JSON at byte 1"},
      {"[{\"role\":}]", "messages: invalid JSON at byte 10"},
      {"[]", "messages: the list is empty"},
      {"7", "messages: neither a list of messages nor an object with \"messages\""},
      {R"({"messages":{}})", "messages is not a list"},
      {R"(["hi"])", "messages: message 0 is not an object"},
      {R"([{"content":"x"}])", "messages: message 0 has no role"},
      {R"([{"role":"user","content":"x"},{"role":"bot","content":"x"}])",
       "messages: message 1: role \"bot\" is not one of system, user, assistant, tool"},
      {R"([{"role":3,"content":"x"}])", "messages: message 0: \"role\" is not a string"},
      {R"([{"role":"user"}])", "messages: message 0 has no content"},
      {R"([{"role":"user","content":5}])",
       "messages: message 0: content is neither a string nor a list"},
      {R"([{"role":"user","content":[{"type":"audio","audio":"v"}]}])",
       "messages: message 0, part 0: type \"audio\" is not one of text, image, image_url, video, "
       "video_url"},
      {R"([{"role":"user","content":[{"type":"video","video":"v","fps":0}]}])",
       "messages: message 0, part 0: fps is not a number above 0"},
      {R"([{"role":"user","content":[{"type":"image","image":"v","digest":1}]}])",
       "messages: message 0, part 0: \"digest\" is not a string"},
      {R"([{"role":"user","content":[5]}])", "messages: message 0, part 0 has no type"},
      {R"([{"role":"assistant","content":"","tool_calls":[{}]}])",
       "messages: message 0, tool call 0 has no name"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":{}})", "tools is not a list"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"},{"type":"function"}]})",
       "tools[1] has no function with a name"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":5}}]})",
       "tools[0] has no function with a name"},
      {R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"enable_thinking":1}})",
       "chat_template_kwargs.enable_thinking is not true or false"},
  };
  for (const auto& item : cases) {
    const auto parsed = ParseMessagesJson(item.json);
    ASSERT_FALSE(parsed.ok()) << item.json;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInput);
    EXPECT_EQ(parsed.status().message(), item.message);
  }
}

TEST(MessagesJson, ImagesAndVideosInEachForm) {
  using Kind = ContentPart::Kind;
  const auto parsed = ParseMessagesJson(R"([{"role":"user","content":[
      {"type":"image"}, {"type":"image","image":"a.png","digest":"12ab"},
      {"type":"image_url","image_url":{"url":"data:x","detail":"low"}},
      {"type":"image_url","image_url":"b.png"}, {"type":"text","text":"look"},
      {"type":"video","video":"c","fps":2.5}, {"type":"video_url","video_url":{"url":"d"}}]}])");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const std::vector<ContentPart>& parts = parsed->messages[0].parts;
  ASSERT_EQ(parts.size(), 7u);
  const std::pair<Kind, const char*> expected[] = {
      {Kind::kImage, ""},      {Kind::kImage, "a.png"}, {Kind::kImage, "data:x"},
      {Kind::kImage, "b.png"}, {Kind::kText, "look"},   {Kind::kVideo, "c"},
      {Kind::kVideo, "d"}};
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].kind, expected[i].first) << i;
    EXPECT_EQ(parts[i].text, expected[i].second) << i;
  }
  EXPECT_EQ(parts[1].digest, "12ab");
  EXPECT_EQ(parts[5].fps, 2.5);
  EXPECT_FALSE(parts[6].fps.has_value());
  EXPECT_EQ(parsed->messages[0].text, "look");
}

TEST(MessagesJson, DeepNestingIsAnError) {
  const std::string deep = std::string(1 << 20, '[');
  EXPECT_FALSE(ParseMessagesJson(deep).ok());
  EXPECT_FALSE(PythonJson(deep + std::string(1 << 20, ']')).ok());
}

// Expected values from Python: json.dumps(json.loads(text), ensure_ascii=False).
TEST(PythonJson, PrintsAsPythonDoes) {
  const struct {
    const char *in, *out;
  } cases[] = {
      {R"({"b":1,"a":[true,false,null,{}],"c":[]})",
       R"({"b": 1, "a": [true, false, null, {}], "c": []})"},
      {"[0.1,1.0,-0.0,1e5,1E+2,0.00001,0.0001,123456789.125]",
       "[0.1, 1.0, -0.0, 100000.0, 100.0, 1e-05, 0.0001, 123456789.125]"},
      {"[1e15,1e16,1.5e16,1e22,1.7976931348623157e308,5e-324,123456789012345680.0]",
       "[1000000000000000.0, 1e+16, 1.5e+16, 1e+22, 1.7976931348623157e+308, 5e-324, "
       "1.2345678901234568e+17]"},
      {"[-1,18446744073709551615,123456789012345678901234567890,-9223372036854775808]",
       "[-1, 18446744073709551615, 123456789012345678901234567890, -9223372036854775808]"},
      {R"("\u00fc\ud83d\ude00\u0001\n\"\\\/\u007f")", "\"ü😀\\u0001\\n\\\"\\\\/\x7f\""},
      {R"({"a":1,"b":2,"a":3})", R"({"a": 3, "b": 2})"},
  };
  for (const auto& item : cases) {
    const auto out = PythonJson(item.in);
    ASSERT_TRUE(out.ok()) << item.in << ": " << out.status().message();
    EXPECT_EQ(*out, item.out);
  }
}

}  // namespace
}  // namespace kuiper
