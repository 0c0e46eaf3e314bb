#include "kuiper/chat/prompt_template.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/chat/kept_reasoning.h"
#include "kuiper/chat/message_values.h"
#include "kuiper/engine/engine.h"
#include "kuiper/jinja/template.h"

namespace kuiper {
namespace {

using jinja::Heap;
using jinja::Origin;
using jinja::Value;

constexpr size_t kHeapBytes = size_t{512} << 20;

// True for messages whose text stands whole and in one piece in the rendered text, so that
// something else can replace it.
std::vector<bool> WholeTexts(const jinja::Rendered& rendered,
                             const std::vector<Message>& messages) {
  std::vector<size_t> pieces(messages.size(), 0), bytes(messages.size(), 0);
  for (const jinja::Run& run : rendered.runs) {
    if (run.origin <= jinja::kData) continue;
    const size_t i = (run.origin - 2) / 2;
    if (run.origin != ContentOrigin(i)) continue;
    ++pieces[i];
    bytes[i] += run.length;
  }
  std::vector<bool> whole(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    whole[i] = pieces[i] == 1 && bytes[i] == TextOf(messages[i]).size();
  }
  return whole;
}

// Cuts the first `end` bytes of a rendered prompt into segments. instead[i], if not empty, replaces
// the text of message i, if that text stands whole.
std::vector<Segment> SegmentsOf(const jinja::Rendered& rendered, size_t end,
                                const std::vector<std::vector<Segment>>& instead,
                                const std::vector<bool>& whole,
                                const std::vector<std::string_view>& tags) {
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
    } else if (run.origin == ContentOrigin(message) && whole[message] &&
               !instead[message].empty()) {
      segments.insert(segments.end(), instead[message].begin(), instead[message].end());
    } else {
      AppendModelText(text, tags, &segments);
    }
  }
  return segments;
}

// Marks the end of the last message's text, to find that place in the rendered text of a prompt
// that ends there. The space shows whether the template trims the text. transformers does the same.
constexpr std::string_view kContinuesHere = "KUIPER_CONTINUES_HERE ";

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

// Returns the byte of `rendered` at which a prompt with kContinuesHere ends.
StatusOr<size_t> EndOfPrompt(std::string_view rendered) {
  constexpr std::string_view kWord = kContinuesHere.substr(0, kContinuesHere.size() - 1);
  const size_t at = rendered.rfind(kWord);
  if (at == std::string_view::npos) {
    return Status(
        StatusCode::kInput,
        "the chat template does not show the last message, so no answer can go on from it");
  }
  if (rendered.substr(at).starts_with(kContinuesHere)) return at;
  return rendered.substr(0, at).find_last_not_of(" \t\r\n") + 1;
}

// Removes the block of an empty system message from a ChatML prompt.
void RemoveEmptySystem(std::vector<Segment>* segments) {
  constexpr std::string_view kBlock = "<|im_start|>system\n<|im_end|>\n";
  if (segments->empty() || !segments->front().text.starts_with(kBlock)) return;
  segments->front().text.erase(0, kBlock.size());
}

// Returns the strings from "<|" to "|>" and similar, which chat templates use for control tokens.
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

StatusOr<PromptTemplate> PromptTemplate::Make(TemplateFiles files, std::string_view model_type) {
  if (files.source.empty()) {
    auto tokens = std::move(files.special_tokens);
    files = DefaultTemplate(model_type);
    files.special_tokens = std::move(tokens);
  }
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
  return result;
}

StatusOr<PromptTemplate> PromptTemplate::Of(const Engine& engine) {
  TemplateFiles files;
  if (!engine.config().model_path.empty()) {
    KU_ASSIGN_OR_RETURN(files, Engine::ReadTemplate(engine.config()));
  }
  StatusOr<PromptTemplate> result = Make(std::move(files), engine.model_config().model_type);
  if (result.ok() && engine.tokenizer() != nullptr) {
    KU_RETURN_IF_ERROR(result->CheckTokens(*engine.tokenizer()));
  }
  return result;
}

StatusOr<jinja::Rendered> PromptTemplate::RenderText(const std::vector<Message>& messages,
                                                     const ChatOptions& options, const std::tm& now,
                                                     const TemplateFacts& facts) const {
  std::vector<JsonNode> tools;
  for (const std::string& tool : options.tools_json) {
    KU_ASSIGN_OR_RETURN(tools.emplace_back(), ParseJson(tool, StatusCode::kInput, "tools"));
  }
  Heap heap(kHeapBytes);
  MessageValues values(facts, &heap);
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
  const bool keeps = options.keep_thinking_in_history && !facts_.before_reasoning.empty();
  std::vector<Message> changed;
  if (keeps || options.continue_final_message) changed = given;
  if (options.continue_final_message) AppendToText(kContinuesHere, &changed.back());
  const std::vector<Message>& messages = changed.empty() ? given : changed;
  const std::vector<std::string_view> tags = ModelTagsOf();
  // Segments that replace the text of a message, if the template shows that text whole.
  std::vector<std::vector<Segment>> instead(messages.size());
  const size_t last_question = LastQuestion(messages);
  // True if the template renders kAnswerHere as the text of message i.
  const auto is_marked = [&](size_t i) {
    return keeps && i <= last_question && !instead[i].empty();
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.role != Role::kAssistant) continue;
    if (!message.ids.empty()) {
      instead[i] = {{"", false, message.ids}};
    } else if (keeps && i <= last_question) {
      const std::optional<std::string> answer = AnswerWithReasoning(message, facts_);
      if (answer.has_value()) AppendModelText(*answer, tags, &instead[i]);
    }
    if (is_marked(i)) SetTextAlone(kAnswerHere, &changed[i]);
  }
  KU_ASSIGN_OR_RETURN(const jinja::Rendered rendered, RenderText(messages, options, now, facts_));
  const std::vector<bool> whole = WholeTexts(rendered, messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_marked(i) || whole[i]) continue;
    ChatOptions without = options;
    without.keep_thinking_in_history = false;
    return Render(given, without, now);
  }
  size_t end = rendered.text.size();
  if (options.continue_final_message) {
    KU_ASSIGN_OR_RETURN(end, EndOfPrompt(rendered.text));
  }
  std::vector<Segment> segments = SegmentsOf(rendered, end, instead, whole, tags);
  if (!options.default_system) RemoveEmptySystem(&segments);
  return segments;
}

bool PromptTemplate::EndsInsideThinking(const std::vector<Segment>& segments) const {
  if (!facts_.thinking.has_value()) return false;
  // Only the template's own text at the end counts.
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
                  "the chat template is " + files_.name);
  }
  return OkStatus();
}

}  // namespace kuiper
