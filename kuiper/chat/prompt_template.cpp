#include "kuiper/chat/prompt_template.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/jinja/template.h"

namespace kuiper {
namespace {

using jinja::Heap;
using jinja::Origin;
using jinja::Value;

constexpr size_t kHeapBytes = size_t{512} << 20;

// The origins of what an assistant wrote: the text of message i, and its reasoning.
Origin ContentOrigin(size_t i) {
  return static_cast<Origin>(2 + 2 * i);
}
Origin ReasoningOrigin(size_t i) {
  return ContentOrigin(i) + 1;
}

JsonNode* FieldOf(JsonNode* object, std::string_view key) {
  const auto found = std::find(object->keys.begin(), object->keys.end(), key);
  return found == object->keys.end() ? nullptr : &object->items[found - object->keys.begin()];
}

// A string that holds a JSON object becomes that object.
void ParseArguments(JsonNode* call) {
  JsonNode* function = FieldOf(call, "function");
  JsonNode* arguments = FieldOf(function == nullptr ? call : function, "arguments");
  if (arguments == nullptr || !arguments->IsString()) return;
  StatusOr<JsonNode> parsed = ParseJson(arguments->text, StatusCode::kInput, "arguments");
  if (parsed.ok() && parsed->IsObject()) *arguments = std::move(*parsed);
}

// What an assistant said, in the forms that the template takes.
JsonNode UsualForm(JsonNode message, const TemplateFacts& facts) {
  JsonNode* content = FieldOf(&message, "content");
  if (content == nullptr && !facts.takes_no_content) {
    message.keys.emplace_back("content");
    message.items.push_back({.type = JsonNode::Type::kString});
  } else if (content != nullptr && content->IsNull() && !facts.takes_null_content) {
    *content = {.type = JsonNode::Type::kString};
  }
  JsonNode* calls = FieldOf(&message, "tool_calls");
  if (calls != nullptr && !facts.takes_text_arguments) {
    for (JsonNode& call : calls->items) ParseArguments(&call);
  }
  return message;
}

// Makes the values that a template sees. They refer to the messages' strings.
class Values {
 public:
  Values(const TemplateFacts& facts, Heap* heap) : facts_(facts), heap_(*heap) {}

  Value Of(const Message& message, size_t i) {
    const bool is_assistant = message.role == Role::kAssistant;
    jinja::Dict* dict = heap_.NewDict();
    // Roles are known words, not what somebody typed.
    Set(dict, "role", Value::String(heap_.Refer(RoleName(message.role), jinja::kTemplate)));
    const Origin origin = is_assistant ? ContentOrigin(i) : jinja::kData;
    if (message.source.IsObject()) {
      const bool is_usual =
          !is_assistant ||
          (facts_.takes_null_content && facts_.takes_no_content && facts_.takes_text_arguments);
      if (!is_usual) changed_.push_back(UsualForm(message.source, facts_));
      AddSource(message, is_usual ? message.source : changed_.back(), origin, dict, i);
      return Value::OfDict(dict);
    }
    Set(dict, "content", Content(message, origin));
    if (message.reasoning.has_value()) {
      Set(dict, "reasoning_content",
          Value::String(heap_.Refer(*message.reasoning, ReasoningOrigin(i))));
    }
    return Value::OfDict(dict);
  }

 private:
  void Set(jinja::Dict* dict, std::string_view key, const Value& value) {
    heap_.Set(dict, Value::String(heap_.Refer(key, jinja::kData)), value);
  }

  Value Content(const Message& message, Origin origin) {
    if (message.parts.empty()) return Value::String(heap_.Refer(message.text, origin));
    if (!facts_.takes_parts && !HasMedia(message)) return heap_.Str(TextOf(message), origin);
    if (message.source.IsObject()) return heap_.FromJson(*message.source.Find("content"), origin);
    jinja::List* parts = heap_.NewList();
    for (const ContentPart& part : message.parts) {
      constexpr std::string_view kKinds[] = {"text", "image", "video"};
      const std::string_view kind = kKinds[static_cast<size_t>(part.kind)];
      jinja::Dict* dict = heap_.NewDict();
      Set(dict, "type", Value::String(heap_.Refer(kind, jinja::kData)));
      Set(dict, kind, Value::String(heap_.Refer(part.text, origin)));
      heap_.Push(parts, Value::OfDict(dict));
    }
    return Value::OfList(parts);
  }

  void AddSource(const Message& message, const JsonNode& source, Origin origin, jinja::Dict* dict,
                 size_t i) {
    for (size_t k = 0; k < source.keys.size(); ++k) {
      const std::string& key = source.keys[k];
      const JsonNode& value = source.items[k];
      if (key == "role") continue;
      if (key == "content" && !value.IsNull()) {
        Set(dict, key, Content(message, origin));
      } else {
        const bool reasoning = key == "reasoning_content" && message.role == Role::kAssistant;
        Set(dict, key, heap_.FromJson(value, reasoning ? ReasoningOrigin(i) : jinja::kData));
      }
    }
  }

  const TemplateFacts& facts_;
  std::deque<JsonNode> changed_;  // the values refer to them
  Heap& heap_;
};

// Which messages are whole and in one piece in the rendered text, so that their ids can stand in
// for them.
std::vector<bool> WholeTexts(const jinja::Rendered& rendered,
                             const std::vector<Message>& messages) {
  std::vector<size_t> pieces(messages.size(), 0), bytes(messages.size(), 0);
  for (const jinja::Run& run : rendered.runs) {
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].ids.empty() || run.origin != ContentOrigin(i)) continue;
      ++pieces[i];
      bytes[i] += run.length;
    }
  }
  std::vector<bool> whole(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    whole[i] = pieces[i] == 1 && bytes[i] == TextOf(messages[i]).size();
  }
  return whole;
}

// Stands at the end of the last message's text while a prompt is rendered that goes on from there.
// The space tells whether the template trims the text. transformers does the same.
constexpr std::string_view kGoesOnHere = "KUIPER_GOES_ON_HERE ";

void AppendToText(std::string_view end, Message* message) {
  message->ids.clear();
  JsonNode* content = FieldOf(&message->source, "content");
  if (message->parts.empty()) {
    message->text += end;
    if (content != nullptr) content->text += end;
    return;
  }
  for (size_t i = message->parts.size(); i-- > 0;) {
    if (message->parts[i].kind != ContentPart::Kind::kText) continue;
    message->parts[i].text += end;
    JsonNode* text = content == nullptr ? nullptr : FieldOf(&content->items[i], "text");
    if (text != nullptr) text->text += end;
    return;
  }
}

// Where the prompt ends that was rendered with kGoesOnHere.
StatusOr<size_t> EndOfPrompt(std::string_view rendered) {
  constexpr std::string_view kWord = kGoesOnHere.substr(0, kGoesOnHere.size() - 1);
  const size_t at = rendered.rfind(kWord);
  if (at == std::string_view::npos) {
    return Status(
        StatusCode::kInput,
        "the chat template does not show the last message, so no answer can go on from it");
  }
  if (rendered.substr(at).starts_with(kGoesOnHere)) return at;
  return rendered.substr(0, at).find_last_not_of(" \t\r\n") + 1;
}

// The strings between "<|" and "|>" and the like, which chat templates use for control tokens.
std::vector<std::string> ControlTokensIn(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kMarks[] = {{"<|", "|>"}, {"<｜", "｜>"}};
  std::vector<std::string> tokens;
  for (const auto& [open, close] : kMarks) {
    for (size_t at = text.find(open); at != std::string_view::npos;
         at = text.find(open, at + open.size())) {
      const size_t end = text.find(close, at + open.size());
      if (end == std::string_view::npos) break;
      const std::string_view token = text.substr(at, end + close.size() - at);
      const bool plain = token.find_first_of(" \n") == std::string_view::npos;
      if (plain && token.find(open, 1) == std::string_view::npos) tokens.emplace_back(token);
    }
  }
  return tokens;
}

}  // namespace

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

StatusOr<std::optional<PromptTemplate>> PromptTemplate::Make(const TemplateFiles& files) {
  if (files.source.empty()) return std::optional<PromptTemplate>();
  const auto named = [&](const Status& status) {
    return Status(status.code(), files.name + ": chat template, " + status.message());
  };
  StatusOr<jinja::Template> main = jinja::Template::Parse(files.source);
  if (!main.ok()) return named(main.status());
  PromptTemplate result(files, std::make_shared<jinja::Template>(std::move(*main)));
  if (!files.tool_source.empty()) {
    StatusOr<jinja::Template> tools = jinja::Template::Parse(files.tool_source);
    if (!tools.ok()) return named(tools.status());
    result.tools_ = std::make_shared<jinja::Template>(std::move(*tools));
  }
  const std::tm now = LocalTime();
  result.facts_ = FindFacts([&](const ParsedMessages& probe, bool takes_parts) {
    ChatOptions options;
    options.tools_json = probe.tools_json;
    options.enable_thinking = probe.enable_thinking;
    options.add_generation_prompt = probe.add_generation_prompt.value_or(true);
    TemplateFacts as_it_is;
    as_it_is.takes_parts = takes_parts;
    const auto rendered = result.RenderText(probe.messages, options, now, as_it_is);
    return rendered.ok() ? rendered->text : std::string();
  });
  return std::optional<PromptTemplate>(std::move(result));
}

StatusOr<jinja::Rendered> PromptTemplate::RenderText(const std::vector<Message>& messages,
                                                     const ChatOptions& options, const std::tm& now,
                                                     const TemplateFacts& facts) const {
  std::vector<JsonNode> tools;
  for (const std::string& tool : options.tools_json) {
    KU_ASSIGN_OR_RETURN(tools.emplace_back(), ParseJson(tool, StatusCode::kInput, "tools"));
  }
  Heap heap(kHeapBytes);
  Values values(facts, &heap);
  jinja::List* list = heap.NewList();
  for (size_t i = 0; i < messages.size(); ++i) heap.Push(list, values.Of(messages[i], i));
  jinja::Template::Variables variables = {
      {"messages", Value::OfList(list)},
      {"add_generation_prompt",
       Value::Bool(options.add_generation_prompt && !options.continue_final_message)},
      {"tools", Value::None()},
      {"documents", heap.FromJson(options.documents, jinja::kData)},
  };
  if (!tools.empty()) {
    jinja::List* tool_list = heap.NewList();
    for (const JsonNode& tool : tools) heap.Push(tool_list, heap.FromJson(tool, jinja::kData));
    variables[2].second = Value::OfList(tool_list);
  }
  for (const auto& [name, text] : files_.special_tokens) {
    variables.emplace_back(name, Value::String(heap.Refer(text, jinja::kTemplate)));
  }
  for (size_t i = 0; i < options.template_kwargs.items.size(); ++i) {
    variables.emplace_back(options.template_kwargs.keys[i],
                           heap.FromJson(options.template_kwargs.items[i], jinja::kData));
  }
  if (options.enable_thinking.has_value()) {
    variables.emplace_back("enable_thinking", Value::Bool(*options.enable_thinking));
  }
  if (options.add_vision_id) variables.emplace_back("add_vision_id", Value::Bool(true));
  const bool by_tools = tools_ != nullptr && !tools.empty();
  return (by_tools ? tools_ : main_)->Render(variables, now, jinja::Limits(), &heap);
}

std::vector<std::string_view> PromptTemplate::ModelTagsOf() const {
  std::vector<std::string_view> tags = ModelTags();
  if (facts_.thinking.has_value()) {
    tags.insert(tags.end(), {facts_.thinking->open, facts_.thinking->close});
  }
  for (const std::string* tag : {&facts_.tool_open, &facts_.tool_close}) {
    if (!tag->empty()) tags.push_back(*tag);
  }
  return tags;
}

Status PromptTemplate::CheckFields(const ChatOptions& options) const {
  const auto reads = [&](const std::string& name) {
    return main_->Mentions(name) || (tools_ != nullptr && tools_->Mentions(name));
  };
  for (const std::string& key : options.template_kwargs.keys) {
    if (reads(key)) continue;
    return Status(StatusCode::kInput,
                  "the chat template does not read " + Quoted(key) + " of chat_template_kwargs");
  }
  if (!options.documents.items.empty() && !reads("documents")) {
    return Status(StatusCode::kInput, "the chat template does not read documents");
  }
  return OkStatus();
}

StatusOr<std::vector<Segment>> PromptTemplate::Render(const std::vector<Message>& given,
                                                      const ChatOptions& options,
                                                      const std::tm& now) const {
  if (given.empty()) return Status(StatusCode::kInput, "there are no messages");
  KU_RETURN_IF_ERROR(CheckFields(options));
  std::vector<Message> marked;
  if (options.continue_final_message) {
    marked = given;
    AppendToText(kGoesOnHere, &marked.back());
  }
  const std::vector<Message>& messages = marked.empty() ? given : marked;
  KU_ASSIGN_OR_RETURN(const jinja::Rendered rendered, RenderText(messages, options, now, facts_));
  const std::vector<bool> whole = WholeTexts(rendered, messages);
  const std::vector<std::string_view> tags = ModelTagsOf();
  size_t end = rendered.text.size();
  if (options.continue_final_message) {
    KU_ASSIGN_OR_RETURN(end, EndOfPrompt(rendered.text));
  }
  std::vector<Segment> segments;
  size_t at = 0;
  for (const jinja::Run& run : rendered.runs) {
    if (at >= end) break;
    const std::string_view text =
        std::string_view(rendered.text).substr(at, std::min(run.length, end - at));
    at += run.length;
    const size_t message = (run.origin - 2) / 2;
    if (run.origin <= jinja::kData) {
      AppendSegment(text, run.origin == jinja::kTemplate, &segments);
    } else if (run.origin == ContentOrigin(message) && whole[message]) {
      segments.push_back({"", false, messages[message].ids});
    } else {
      AppendModelText(text, tags, &segments);
    }
  }
  return segments;
}

bool PromptTemplate::EndsInsideThinking(const std::vector<Segment>& segments) const {
  if (!facts_.thinking.has_value()) return false;
  // The end of the prompt that the template wrote.
  if (segments.empty() || !segments.back().is_control) return false;
  const std::string& text = segments.back().text;
  const size_t open = text.rfind(facts_.thinking->open);
  const size_t close = text.rfind(facts_.thinking->close);
  return open != std::string::npos && (close == std::string::npos || close < open);
}

Status PromptTemplate::CheckTokens(const Tokenizer& tokenizer) const {
  Message question, answer;
  question.text = answer.text = "Q";
  answer.role = Role::kAssistant;
  std::string text;
  for (const std::vector<Message>& messages :
       {std::vector{question}, {question, answer, question}}) {
    const auto rendered = RenderText(messages, {}, LocalTime(), TemplateFacts());
    if (rendered.ok()) text += rendered->text;
  }
  for (const std::string& token : ControlTokensIn(text)) {
    if (tokenizer.TokenId(token).has_value()) continue;
    return Status(StatusCode::kTokenizer,
                  "tokenizer does not match the chat template: it has no token " + token,
                  "the template is that of " + files_.name);
  }
  return OkStatus();
}

}  // namespace kuiper
