#include "kuiper/chat/template_facts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kuiper/base/text.h"

namespace kuiper {
namespace {

constexpr char kUser[] = R"({"role":"user","content":"KuiperQuestion"})";

std::string Conversation(const std::string& rest, bool generates, const std::string& more = "") {
  return R"({"messages":[)" + std::string(kUser) + (rest.empty() ? "" : ",") + rest +
         R"(],"add_generation_prompt":)" + (generates ? "true" : "false") + more + "}";
}

constexpr char kTools[] =
    R"(,"tools":[{"type":"function","function":{"name":"kuiper_tool","description":"d",)"
    R"("parameters":{"type":"object","properties":{"kuiper_key":{"type":"string","description":"d"}},)"
    R"("required":["kuiper_key"]}}}])";

// The tag that `text` ends with (or begins with), spaces aside: <...> or [...].
std::string TagAtEnd(std::string_view text) {
  const size_t end = text.find_last_not_of(" \n") + 1;
  if (end == 0 || (text[end - 1] != '>' && text[end - 1] != ']')) return "";
  const size_t begin = text.substr(0, end).rfind(text[end - 1] == '>' ? '<' : '[');
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin, end - begin));
}
std::string TagAtBegin(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n");
  if (begin == std::string_view::npos || (text[begin] != '<' && text[begin] != '[')) return "";
  const size_t end = text.find(text[begin] == '<' ? '>' : ']', begin);
  return end == std::string_view::npos ? "" : std::string(text.substr(begin, end + 1 - begin));
}

// The tag that ends what `open` begins: </think>, [/THINK], <|END_THINKING|>, <|inner_suffix|>.
std::string Counterpart(const std::string& open) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"START", "END"}, {"start", "end"}, {"begin", "end"}, {"prefix", "suffix"}};
  for (const auto& [first, last] : kWords) {
    const size_t at = open.find(first);
    if (at != std::string::npos) return std::string(open).replace(at, first.size(), last);
  }
  const size_t name = open.starts_with("<|") ? 2 : 1;
  return std::string(open).insert(std::min(name, open.size()), 1, '/');
}

// Returns the text that `longer` has and `shorter` lacks, if they differ in one place.
std::string_view Difference(std::string_view longer, std::string_view shorter) {
  size_t begin = 0, end = 0;
  const size_t most = std::min(longer.size(), shorter.size());
  while (begin < most && longer[begin] == shorter[begin]) ++begin;
  while (end < most - begin &&
         longer[longer.size() - 1 - end] == shorter[shorter.size() - 1 - end]) {
    ++end;
  }
  return longer.substr(begin, longer.size() - begin - end);
}

// Renders conversations with words that occur nowhere else. If a template refuses a probe, it lacks
// the feature that the probe looks for.
class Prober {
 public:
  explicit Prober(const RenderProbe& render) : render_(render) {}

  TemplateFacts Run() {
    // A template takes parts when they give the same text as the string.
    const std::string parts =
        Probe(R"([{"role":"user","content":[{"type":"text","text":"KuiperQuestion"}]}])", true);
    const std::string plain = Probe(Conversation("", true));
    facts_.takes_parts = !parts.empty() && parts == plain;
    const std::string image =
        Probe(R"([{"role":"user","content":[{"type":"image","image":"KuiperPicture"},)"
              R"({"type":"text","text":"KuiperQuestion"}]}])",
              true);
    facts_.takes_images = facts_.takes_parts && image != parts &&
                          image.find("KuiperQuestion") != std::string::npos &&
                          image.find("KuiperPicture") == std::string::npos;
    const std::string with_system =
        Probe(R"([{"role":"system","content":""},)" + std::string(kUser) + "]");
    facts_.has_system = !with_system.empty() && with_system.size() < plain.size();
    facts_.reads_tools =
        Probe(Conversation("", true, kTools)).find("kuiper_tool") != std::string::npos;
    FindContentForms();
    FindThinking();
    FindToolCalls();
    return facts_;
  }

 private:
  std::string Probe(const std::string& messages_json, bool takes_parts = false) const {
    const StatusOr<ParsedMessages> parsed = ParseMessagesJson(messages_json);
    return parsed.ok() ? render_(*parsed, takes_parts) : "";
  }
  void FindContentForms();
  void FindThinking();
  void FindToolCalls();

  const RenderProbe& render_;
  TemplateFacts facts_;
};

// Finds forms that a template fails on, or prints as Python's None, although it takes an empty
// text.
void Prober::FindContentForms() {
  const auto answer = [&](const std::string& content, const std::string& arguments) {
    const std::string calls =
        R"("tool_calls":[{"id":"call00001","type":"function","function":{"name":"kuiper_tool",)"
        R"("arguments":)" +
        arguments + "}}]";
    const std::string fields = content.empty() || arguments.empty() ? content : content + ",";
    return Probe(Conversation(
        R"({"role":"assistant",)" + fields + (arguments.empty() ? "" : calls) + "}," + kUser, true,
        kTools));
  };
  const std::string object = R"({"kuiper_key":"v"})", text = R"("{\"kuiper_key\": \"v\"}")";
  const std::string empty = R"("content":"")";
  for (const std::string& arguments : {std::string(), object, text}) {
    const std::string right = answer(empty, arguments);
    if (right.empty()) continue;
    const auto takes = [&](const std::string& content) {
      const std::string got = answer(content, arguments);
      return !got.empty() &&
             (got.find("None") == std::string::npos || right.find("None") != std::string::npos);
    };
    facts_.takes_null_content &= takes(R"("content":null)");
    // A message without content must hold something else.
    if (!arguments.empty()) facts_.takes_no_content &= takes("");
  }
  facts_.takes_text_arguments = answer(empty, object).empty() || !answer(empty, text).empty();
}

// The tags surround the reasoning of the last answer. A template that takes no reasoning may still
// drop it from the text of earlier answers, or open the block in the prompt.
void Prober::FindThinking() {
  const ThinkingTags known[] = {{},
                                {"[THINK]", "[/THINK]"},
                                {"<seed:think>", "</seed:think>"},
                                {"<|START_THINKING|>", "<|END_THINKING|>"},
                                {"<|inner_prefix|>", "<|inner_suffix|>"},
                                {"<|think|>", "<|/think|>"},
                                {"<mm:think>", "</mm:think>"}};
  const std::string prompt = Probe(Conversation("", true));
  constexpr std::string_view kWord = "KuiperReason";
  for (const char* calls : {"", R"(,"tool_calls":[{"id":"call00001","type":"function","function":{)"
                                R"("name":"kuiper_tool","arguments":{"kuiper_key":"v"}}}])"}) {
    const std::string text = Probe(Conversation(
        std::string(R"({"role":"assistant","content":"KuiperAnswer","reasoning_content":")") +
            std::string(kWord) + "\"" + calls + "}",
        false, *calls != '\0' ? kTools : ""));
    const size_t at = text.find(kWord);
    if (at == std::string::npos) continue;
    const std::string open = TagAtEnd(std::string_view(text).substr(0, at));
    const std::string close = TagAtBegin(std::string_view(text).substr(at + kWord.size()));
    if (open.empty() || close != Counterpart(open)) continue;
    facts_.thinking = {open, close};
    facts_.before_reasoning = text.substr(text.rfind(open, at), at - text.rfind(open, at));
    const size_t end = at + kWord.size(), answer = text.find("KuiperAnswer", end);
    facts_.after_reasoning = answer == std::string::npos ? close : text.substr(end, answer - end);
    break;
  }
  for (const ThinkingTags& tags : known) {
    if (facts_.thinking.has_value()) break;
    const std::string history =
        Probe(Conversation(R"({"role":"assistant","content":")" + tags.open + R"(KuiperReason)" +
                               tags.close + R"(KuiperAnswer"},)" + kUser,
                           true));
    const bool drops = history.find(kWord) == std::string::npos &&
                       history.find("KuiperAnswer") != std::string::npos;
    if (drops || TagAtEnd(prompt) == tags.open) facts_.thinking = tags;
  }
  facts_.thinks_at_once = facts_.thinking.has_value() && TagAtEnd(prompt) == facts_.thinking->open;
  if (facts_.thinks_at_once) facts_.before_reasoning = facts_.after_reasoning = "";
  const std::string without =
      Probe(Conversation("", true, R"(,"chat_template_kwargs":{"enable_thinking":false})"));
  if (without.starts_with(prompt)) facts_.no_thinking = without.substr(prompt.size());
}

void Prober::FindToolCalls() {
  const std::string plain =
      Probe(Conversation(R"({"role":"assistant","content":""})", false, kTools));
  for (const char* arguments : {R"({"kuiper_key":"v"})", R"("{\"kuiper_key\": \"v\"}")"}) {
    const std::string text = Probe(Conversation(
        R"({"role":"assistant","content":"","tool_calls":[{"id":"call00001","type":"function",)"
        R"("function":{"name":"kuiper_tool","arguments":)" +
            std::string(arguments) + "}}]}",
        false, kTools));
    std::string_view call = Difference(text, plain);
    if (call.find("kuiper_tool") == std::string_view::npos) continue;
    // A tag that both texts begin the difference with belongs to the call.
    const size_t begin = static_cast<size_t>(call.data() - text.data());
    const size_t open = std::string_view(text).substr(0, begin).find_last_of("<[>]\n");
    if (open != std::string_view::npos && (text[open] == '<' || text[open] == '[')) {
      call = std::string_view(text).substr(open, begin - open + call.size());
    }
    call.remove_prefix(std::min(call.find_first_not_of(" \n"), call.size()));
    facts_.tool_open = TagAtBegin(call);
    facts_.tool_close = facts_.tool_open.empty() ? "" : Counterpart(facts_.tool_open);
    const size_t close =
        facts_.tool_open.empty() ? std::string::npos : call.find(facts_.tool_close);
    if (close != std::string::npos) {
      call = call.substr(0, close + facts_.tool_close.size());
    } else {
      // Without a pair of tags, the text that ends the call may also end the turn.
      facts_.tool_open = facts_.tool_close = "";
    }
    facts_.tool_call = call.substr(0, call.find_last_not_of(" \n") + 1);
    return;
  }
}

}  // namespace

TemplateFacts FindFacts(const RenderProbe& render) {
  return Prober(render).Run();
}

std::vector<std::string> Describe(const TemplateFacts& facts, const std::string& name) {
  const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
  std::string thinking = "none";
  if (facts.thinking.has_value()) {
    thinking = facts.thinking->open + " ... " + facts.thinking->close +
               (facts.thinks_at_once ? ", opened by the prompt" : "");
  }
  return {
      "chat template: " + (name.empty() ? "none, the texts of messages are joined" : name),
      "chat template: thinking: " + thinking,
      "chat template: tool calls: " + (facts.tool_call.empty() ? "none" : Quoted(facts.tool_call)) +
          ", tools in the prompt: " + yes(facts.reads_tools),
      "chat template: content as parts: " + yes(facts.takes_parts) +
          ", a system message of its own: " + yes(facts.has_system)};
}

}  // namespace kuiper
