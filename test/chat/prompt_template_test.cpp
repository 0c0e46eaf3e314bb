#include "kuiper/chat/prompt_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "kuiper/base/text.h"
#include "kuiper/io/messages_json.h"
#include "test/jinja/render.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using test::Shared;

StatusOr<JsonNode> ReadJson(const std::string& path) {
  KU_ASSIGN_OR_RETURN(const std::string text,
                      ReadTextFile(path, size_t{64} << 20, StatusCode::kInput));
  return ParseJson(text, StatusCode::kInput, path);
}

PromptTemplate Make(const std::string& source, const std::string& name = "test") {
  auto made = PromptTemplate::Make({.name = name, .source = source});
  EXPECT_TRUE(made.ok()) << name << ": " << made.status().message();
  return std::move(*made);
}

std::vector<Message> Messages(const std::string& json) {
  const auto parsed = ParseMessagesJson(json);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed->messages;
}

class PublicTemplatesTest : public testing::Test {
 protected:
  void SetUp() override {
    KU_REQUIRE_SHARED("chat_templates_jinja.json");
    auto json = ReadJson(Shared("chat_templates_jinja.json"));
    ASSERT_TRUE(json.ok()) << json.status().message();
    data_ = std::move(*json);
    const JsonNode& templates = *data_.Find("templates");
    const JsonNode& tokens = *data_.Find("special_tokens");
    for (size_t i = 0; i < templates.items.size(); ++i) {
      TemplateFiles files = {.name = templates.keys[i],
                             .source = templates.items[i].Find("template")->text};
      for (size_t k = 0; k < tokens.keys.size(); ++k) {
        files.special_tokens.emplace_back(tokens.keys[k], tokens.items[k].text);
      }
      auto made = PromptTemplate::Make(files);
      ASSERT_TRUE(made.ok()) << files.name << ": " << made.status().message();
      templates_.push_back(std::move(*made));
    }
  }
  const PromptTemplate& Named(const std::string& name) const {
    const auto found = std::find_if(templates_.begin(), templates_.end(),
                                    [&](const PromptTemplate& t) { return t.name() == name; });
    EXPECT_NE(found, templates_.end()) << name;
    return *found;
  }

  JsonNode data_;
  std::vector<PromptTemplate> templates_;
};

// The goldens again, through messages as programs have them.
TEST_F(PublicTemplatesTest, MessagesRenderAsTransformersDoes) {
  const std::tm now = jinja::GoldenTime();
  int equal = 0, joined = 0;
  for (const PromptTemplate& own : templates_) {
    for (const JsonNode& item : data_.Find("cases")->items) {
      const std::string& name = item.Find("name")->text;
      const JsonNode& golden =
          *data_.Find("templates")->Find(own.name())->Find("cases")->Find(name);
      const auto parsed = ParseMessages(item);
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      ChatOptions options;
      options.tools_json = parsed->tools_json;
      options.add_generation_prompt = parsed->add_generation_prompt.value_or(true);
      if (const JsonNode* thinking = item.Find("enable_thinking")) {
        options.enable_thinking = thinking->boolean;
      }
      const auto segments = own.Render(parsed->messages, options, now);
      // Text parts for a template that takes strings only.
      if (name == "parts" && !own.facts().takes_parts) {
        // Some render nothing without tools.
        const JsonNode& plain =
            *data_.Find("templates")->Find(own.name())->Find("cases")->Find("user");
        if (plain.Find("error") != nullptr) continue;
        ASSERT_TRUE(segments.ok()) << own.name() << ": " << segments.status().message();
        EXPECT_NE(JoinSegments(*segments).find("What is this?"), std::string::npos) << own.name();
        ++joined;
        continue;
      }
      if (golden.Find("error") != nullptr) {
        EXPECT_FALSE(segments.ok()) << own.name() << ", " << name;
        continue;
      }
      ASSERT_TRUE(segments.ok()) << own.name() << ", " << name << ": "
                                 << segments.status().message();
      EXPECT_EQ(JoinSegments(*segments), golden.Find("text")->text) << own.name() << ", " << name;
      ++equal;
    }
  }
  EXPECT_GT(equal, 880);
  EXPECT_GE(joined, 19);
}

// Everything of this shape in a template's text; the tags models write themselves are among them.
std::set<std::string> ControlTokens(const std::string& text) {
  constexpr std::pair<const char*, const char*> kMarks[] = {
      {"<|", "|>"}, {"<｜", "｜>"}, {"<", ">"}, {"[", "]"}};
  std::set<std::string> tokens;
  for (const auto& [open, close] : kMarks) {
    for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1)) {
      const size_t end = text.find(close, at);
      if (end == std::string::npos) break;
      const std::string token = text.substr(at, end + std::string(close).size() - at);
      if (token.size() < 40 && token.find_first_of(" \n\"'\\") == std::string::npos) {
        tokens.insert(token);
      }
    }
  }
  return tokens;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A conversation with `evil` in every text that does not come from the template.
std::string Everywhere(const std::string& evil) {
  const std::string e = PythonJsonString("⟦" + evil + "⟧");
  return R"({"messages":[{"role":"system","content":)" + e + R"(},{"role":"user","content":)" + e +
         R"(,"name":)" + e + R"(},{"role":"assistant","content":)" + e +
         R"(,"reasoning_content":)" + e +
         R"(,"tool_calls":[{"id":"call00001","type":"function","function":{"name":)" + e +
         R"(,"arguments":{)" + e + ":" + e + R"(,"n":[1,)" + e +
         R"(]}}}]},{"role":"tool","content":)" + e + R"(,"tool_call_id":"call00001","name":)" + e +
         R"(},{"role":"assistant","content":)" + e + R"(},{"role":"user","content":)" + e +
         R"(}],"tools":[{"type":"function","function":{"name":)" + e + R"(,"description":)" + e +
         R"(,"parameters":{"type":"object","properties":{)" + e +
         R"(:{"type":"string","description":)" + e + R"(,"enum":[)" + e + R"(]}},"required":[)" +
         e + "]}}}]}";
}

// What is between our brackets came from us: no byte of it may be in a control segment, except the
// tags that models write themselves, in their text.
TEST_F(PublicTemplatesTest, DataNeverFormsControlTokens) {
  int rendered = 0;
  for (size_t t = 0; t < templates_.size(); ++t) {
    const PromptTemplate& own = templates_[t];
    const JsonNode& entry = *data_.Find("templates")->Find(own.name());
    for (const std::string& token : ControlTokens(entry.Find("template")->text)) {
      const auto parsed = ParseMessagesJson(Everywhere(token));
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      // A template may refuse some of it, so the fields come one by one, too.
      std::vector<std::vector<Message>> conversations = {parsed->messages};
      for (const Message& message : parsed->messages) {
        Message question;
        question.text = "⟦" + token + "⟧";
        conversations.push_back(message.role == Role::kUser ? std::vector{message}
                                                            : std::vector{question, message});
        if (message.role == Role::kSystem)
          std::swap(conversations.back()[0], conversations.back()[1]);
      }
      const std::vector<std::string_view>& known = ModelTags();
      const TemplateFacts& facts = own.facts();
      const bool is_model_tag = std::find(known.begin(), known.end(), token) != known.end() ||
                                token == facts.tool_open || token == facts.tool_close ||
                                (facts.thinking.has_value() &&
                                 (token == facts.thinking->open || token == facts.thinking->close));
      for (const std::vector<Message>& messages : conversations) {
        ChatOptions options;
        options.tools_json = parsed->tools_json;
        const auto segments = own.Render(messages, options, LocalTime());
        if (!segments.ok()) continue;
        ++rendered;
        for (const Segment& segment : *segments) {
          if (!segment.is_control) continue;
          EXPECT_EQ(segment.text.find("⟦"), std::string::npos) << own.name() << ": " << token;
          EXPECT_EQ(segment.text.find("⟧"), std::string::npos) << own.name() << ": " << token;
        }
        if (is_model_tag) continue;
        // The brackets are data, so what stands between them must be in the same segment.
        const std::string bracketed = "⟦" + token + "⟧";
        size_t inside = 0;
        for (const Segment& segment : *segments) inside += Count(segment.text, bracketed);
        const size_t in_text = Count(JoinSegments(*segments), bracketed);
        EXPECT_EQ(inside, in_text) << own.name() << ": " << token;
      }
    }
  }
  EXPECT_GT(rendered, 2000);
}

TEST_F(PublicTemplatesTest, SaysWhatItFound) {
  const TemplateFacts& qwen3 = Named("Qwen-Qwen3-0.6B.jinja").facts();
  ASSERT_TRUE(qwen3.thinking.has_value());
  EXPECT_EQ(qwen3.thinking->open, "<think>");
  EXPECT_EQ(qwen3.thinking->close, "</think>");
  EXPECT_FALSE(qwen3.thinks_at_once);
  EXPECT_EQ(qwen3.tool_open, "<tool_call>");
  EXPECT_EQ(qwen3.tool_close, "</tool_call>");
  EXPECT_TRUE(qwen3.reads_tools);
  const TemplateFacts& qwen25 = Named("Qwen-Qwen2.5-7B-Instruct.jinja").facts();
  EXPECT_FALSE(qwen25.thinking.has_value());
  EXPECT_TRUE(qwen25.has_system);
  const TemplateFacts& qwq = Named("Qwen-QwQ-32B.jinja").facts();
  ASSERT_TRUE(qwq.thinking.has_value());
  const TemplateFacts& r1 = Named("deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja").facts();
  ASSERT_TRUE(r1.thinking.has_value());
  EXPECT_EQ(r1.thinking->close, "</think>");
  EXPECT_TRUE(r1.thinks_at_once);
  const TemplateFacts& seed = Named("ByteDance-Seed-OSS.jinja").facts();
  ASSERT_TRUE(seed.thinking.has_value());
  EXPECT_EQ(seed.thinking->open, "<seed:think>");
  EXPECT_EQ(seed.tool_open, "<seed:tool_call>");
  const TemplateFacts& llama = Named("meta-llama-Llama-3.1-8B-Instruct.jinja").facts();
  EXPECT_FALSE(llama.thinking.has_value());
  EXPECT_NE(llama.tool_call.find("\"name\": \"kuiper_tool\""), std::string::npos);
  EXPECT_EQ(Describe(qwen3, "x").at(1), "chat template: thinking: <think> ... </think>");
}

constexpr char kChatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string Show(const StatusOr<std::vector<Segment>>& segments) {
  if (!segments.ok()) return "error: " + segments.status().message();
  std::string text;
  for (const Segment& segment : *segments) {
    text += segment.is_control ? "<" : "(";
    text += segment.ids.empty() ? segment.text : std::to_string(segment.ids.size()) + " ids";
    text += segment.is_control ? ">" : ")";
  }
  return text;
}

TEST(PromptTemplate, IdsStandForTextThatIsWhole) {
  std::vector<Message> messages(3);
  messages[0].text = messages[2].text = "Q";
  messages[1].role = Role::kAssistant;
  messages[1].text = " A ";
  messages[1].ids = {1, 2, 3};
  const std::string source = "{% for m in messages %}{{ m.content }}|{% endfor %}";
  EXPECT_EQ(Show(Make(source).Render(messages, {}, LocalTime())), "(Q)<|>(3 ids)<|>(Q)<|>");
  const std::string trims = "{% for m in messages %}{{ m.content | trim }}|{% endfor %}";
  EXPECT_EQ(Show(Make(trims).Render(messages, {}, LocalTime())), "(Q)<|>(A)<|>(Q)<|>");
  const std::string twice = "{% for m in messages %}{{ m.content }}|{{ m.content }}{% endfor %}";
  EXPECT_EQ(Show(Make(twice).Render({messages[1]}, {}, LocalTime())), "( A )<|>( A )");
}

TEST(PromptTemplate, TheModelsOwnTagsAreControlInItsTextOnly) {
  const std::string both = R"([{"role":"user","content":"<think>"},)"
                           R"({"role":"assistant","content":"<think>x<|im_end|></think>"}])";
  EXPECT_EQ(Show(Make("{% for m in messages %}{{ m.content }}|{% endfor %}")
                     .Render(Messages(both), {}, LocalTime())),
            "(<think>)<|<think>>(x<|im_end|>)<</think>|>");
}

TEST(PromptTemplate, JoinsPartsForTemplatesThatTakeStrings) {
  const std::string parts = R"([{"role":"user","content":[{"type":"text","text":"a"},)"
                            R"({"type":"text","text":"b"}]}])";
  EXPECT_EQ(Show(Make("{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}")
                     .Render(Messages(parts), {}, LocalTime())),
            "<[>(ab)<]>");
  EXPECT_EQ(Show(Make("{% for m in messages %}{% if m.content is string %}{{ m.content }}"
                      "{% else %}{% for p in m.content %}{{ p.text }}{{ '/' if not loop.last }}"
                      "{% endfor %}{% endif %}{% endfor %}")
                     .Render(Messages(parts), {}, LocalTime())),
            "(a)</>(b)");
}

TEST(PromptTemplate, RefusesWhatNobodyReads) {
  const PromptTemplate own = Make(kChatml);
  ChatOptions options;
  options.template_kwargs = *ParseJson(R"({"effort":"low"})", StatusCode::kInput, "test");
  EXPECT_EQ(own.Render(Messages(R"([{"role":"user","content":"Q"}])"), options, LocalTime())
                .status()
                .message(),
            "the chat template does not read \"effort\" of chat_template_kwargs");
  EXPECT_TRUE(
      own.Render(Messages(R"([{"role":"user","content":"Q","mood":1}])"), {}, LocalTime()).ok())
      << "clients keep notes in messages";
  EXPECT_EQ(Show(Make("{{ effort }}{{ messages[0].mood }}")
                     .Render(Messages(R"([{"role":"user","content":"Q","mood":1}])"), options,
                             LocalTime())),
            "(low1)");
}

// The expected prompts are those of transformers 5.24: apply_chat_template(continue_final_message).
// Every template keeps reasoning that it shows in the last answer, not those of Qwen alone.
TEST(PromptTemplate, KeepsReasoningOfEarlierTurns) {
  const PromptTemplate own = Make(
      "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content and loop.last %}<think>{{ "
      "m.reasoning_content }}</think>{% endif %}{{ m.content.split('</think>')[-1] }}{% endfor %}");
  EXPECT_EQ(own.facts().before_reasoning, "<think>");
  EXPECT_EQ(own.facts().after_reasoning, "</think>");
  std::vector<Message> messages = Messages(
      R"([{"role":"user","content":"1"},{"role":"assistant","content":"","reasoning_content":"a"},
          {"role":"user","content":"2"},{"role":"assistant","content":"<think>b</think>B"},
          {"role":"user","content":"3"},{"role":"assistant","content":"C"},
          {"role":"user","content":"4"}])");
  messages[5].ids = {7, 8};
  const auto text = [&](bool keeps) {
    ChatOptions options;
    options.keep_thinking_in_history = keeps;
    return Show(own.Render(messages, options, LocalTime()));
  };
  EXPECT_EQ(text(false),
            "<[user]>(1)<[assistant][user]>(2)<[assistant]>(B)<[user]>(3)<[assistant]>(2 ids)"
            "<[user]>(4)");
  EXPECT_EQ(text(true),
            "<[user]>(1)<[assistant]><<think>>(a)<</think>[user]>(2)<[assistant]><<think>>(b)"
            "<</think>>(B)<[user]>(3)<[assistant]>(2 ids)<[user]>(4)");
}

TEST(PromptTemplate, EndsWithTheTextOfTheLastMessage) {
  ChatOptions options;
  options.continue_final_message = true;
  const auto render = [&](const PromptTemplate& own, const std::string& last,
                          const char* first = "Q") {
    std::vector<Message> messages =
        Messages(std::string(R"([{"role":"user","content":")") + first + "\"}]");
    messages.push_back({.role = Role::kAssistant, .text = last});
    const auto prompt = own.Render(messages, options, LocalTime());
    EXPECT_TRUE(prompt.ok()) << last << ": " << prompt.status().message();
    return prompt.ok() ? JoinSegments(*prompt) : "";
  };
  const auto bundled = [](const std::string& name) {
    return Make(ReadTemplateFiles(test::Source("demo/models/" + name))->source, name);
  };
  const PromptTemplate qwen3 = bundled("tiny-qwen3"), qwen25 = bundled("tiny-qwen2.5");
  const std::string begin3 = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n";
  const std::string begin25 =
      "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
      "assistant.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n";
  for (const char* text : {"The answer", "A ", "<think>\nwhy"}) {
    EXPECT_EQ(render(qwen3, text), begin3 + "\n</think>\n\n" + text);
    EXPECT_EQ(render(qwen25, text), begin25 + text);
  }
  EXPECT_EQ(render(qwen3, "\n A\n"), begin3 + "\n</think>\n\n A\n");
  EXPECT_EQ(render(qwen25, "\n A\n"), begin25 + "\n A\n");
  const char* thought = "<think>\nwhy\n</think>\n\nA";
  EXPECT_EQ(render(qwen3, thought), begin3 + "why\n</think>\n\nA");
  EXPECT_EQ(render(qwen25, thought), begin25 + thought);
  EXPECT_EQ(render(qwen3, "<think>\nfoo\n</think>\n\n"), begin3 + "foo\n</think>\n\n");
  EXPECT_EQ(render(qwen3, "<think>\n\n</think>\n\n"), begin3 + "\n</think>\n\n");
  EXPECT_EQ(render(qwen25, "</think>"), begin25 + "</think>");
  const PromptTemplate trims =
      Make("{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}</s>{% endfor %}");
  EXPECT_EQ(render(trims, " A ", "A"), "[user] A</s>[assistant] A");
  const PromptTemplate hides = Make("{% for m in messages %}{{ m.role }}{% endfor %}");
  std::vector<Message> messages = Messages(R"([{"role":"user","content":"Q"}])");
  messages.push_back({.role = Role::kAssistant, .text = "A"});
  EXPECT_EQ(hides.Render(messages, options, LocalTime()).status().code(), StatusCode::kInput);
}

// Null fields are as good as none, and what another server calls the reasoning is known.
TEST(PromptTemplate, AnswersOfServersAreMessages) {
  const auto messages =
      Messages(R"([{"role":"user","content":"Q"},{"role":"assistant","content":"A","refusal":null,)"
               R"("audio":null,"function_call":null,"reasoning":"why"}])");
  EXPECT_EQ(messages[1].reasoning, "why");
  EXPECT_EQ(Show(Make("{% for m in messages %}{{ m.content }}{{ m.reasoning_content or '-' }}"
                      "{% endfor %}")
                     .Render(messages, {}, LocalTime())),
            "(Q)<->(Awhy)");
}

// A template gets null, no content and arguments as text where it takes them, else what is empty or
// parsed.
TEST(PromptTemplate, ContentBesideCallsIsWhatTheTemplateTakes) {
  const auto call = [](const std::string& content) {
    return Messages(R"([{"role":"user","content":"Q"},{"role":"assistant",)" + content +
                    R"("tool_calls":[{"type":"function","function":{"name":"f",)" +
                    R"("arguments":"{\"a\": \"b\"}"}}]},{"role":"tool","content":"r"}])");
  };
  const PromptTemplate knows_null = Make(
      "{% for m in messages %}[{{ 'null' if m.content is none else m.content }}"
      "{{ m.tool_calls[0].function.arguments if m.tool_calls }}]{% endfor %}");
  EXPECT_TRUE(knows_null.facts().takes_null_content);
  EXPECT_TRUE(knows_null.facts().takes_text_arguments);
  EXPECT_EQ(JoinSegments(*knows_null.Render(call(R"("content":null,)"), {}, LocalTime())),
            R"([Q][null{"a": "b"}][r])");
  // A length, a sum, a print, a filter, and a mapping for arguments.
  for (const char* use :
       {"{{ m.content | length }}", "{{ '' + m.content }}", "{{ m.content }}",
        "{% for c in m.content %}{{ c }}{% endfor %}", "{{ m['content'].strip() }}"}) {
    const PromptTemplate own = Make(
        std::string("{% for m in messages %}[") + use +
        "{% for k, v in (m.tool_calls[0].function.arguments.items() if m.tool_calls else []) %}"
        "{{ k }}={{ v }}{% endfor %}]{% endfor %}");
    EXPECT_FALSE(own.facts().takes_null_content) << use;
    EXPECT_FALSE(own.facts().takes_text_arguments) << use;
    const auto empty = own.Render(call(R"("content":"",)"), {}, LocalTime());
    ASSERT_TRUE(empty.ok()) << use << ": " << empty.status().message();
    EXPECT_NE(JoinSegments(*empty).find("a=b"), std::string::npos);
    for (const char* content : {R"("content":null,)", ""}) {
      const auto prompt = own.Render(call(content), {}, LocalTime());
      ASSERT_TRUE(prompt.ok()) << use << ": " << prompt.status().message();
      EXPECT_EQ(JoinSegments(*prompt), JoinSegments(*empty)) << use;
    }
  }
}

TEST(PromptTemplate, NullBesideCallsIsNoTextForQwen3Vl) {
  const std::string path = "outside/05-vl-null-content-with-tool-calls/";
  KU_REQUIRE_SHARED(path + "messages.json");
  const PromptTemplate own = PromptTemplate::Make({}, "qwen3_vl").value();
  const auto read = [&](const char* name) {
    return *ReadTextFile(Shared(path + name), size_t{1} << 20, StatusCode::kInput);
  };
  const auto prompt = own.Render(Messages(read("messages.json")), {}, LocalTime());
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(JoinSegments(*prompt), read("expected_prompt.txt"));
}

TEST(PromptTemplate, ErrorsHaveAPlace) {
  const auto made = PromptTemplate::Make({.name = "f.jinja", .source = "a\n{% if %}"});
  EXPECT_EQ(made.status().code(), StatusCode::kModel);
  EXPECT_EQ(made.status().message(),
            "f.jinja: chat template, line 2, column 7: found \"%}\" where an expression should be");
  const auto refused = Make("{{ raise_exception('no tools') }}")
                           .Render(Messages(R"([{"role":"user","content":"Q"}])"), {}, LocalTime());
  EXPECT_EQ(refused.status().code(), StatusCode::kInput);
  EXPECT_EQ(refused.status().message(), "the chat template refuses the messages: no tools");
}

TEST(PromptTemplate, TokenizerMustHaveItsControlTokens) {
  KU_REQUIRE_SHARED("tokenizers/qwen3/tokenizer.json");
  const auto tokenizer = Tokenizer::Load(Shared("tokenizers/qwen3"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_TRUE(Make(kChatml).CheckTokens(**tokenizer).ok());
  const Status status =
      Make("<|turn_of_kuiper|>{{ messages[0].content }}").CheckTokens(**tokenizer);
  EXPECT_EQ(status.code(), StatusCode::kTokenizer);
  EXPECT_EQ(status.message(),
            "tokenizer does not match the chat template: it has no token <|turn_of_kuiper|>");
}

}  // namespace
}  // namespace kuiper
