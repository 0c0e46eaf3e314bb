// A model's chat template: it renders messages as the text of a prompt, in segments of which only
// the template's own may hold control tokens. Rendering a few test conversations shows what
// programs must know about the model: its thinking tags, and how it calls tools.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/chat/template_facts.h"
#include "kuiper/io/chat_message.h"
#include "kuiper/io/template_files.h"

namespace kuiper {
class Engine;
namespace jinja {
class Template;
struct Rendered;
}  // namespace jinja

class PromptTemplate {
 public:
  // Parses the template and renders test conversations. Without a template in `files` it is
  // DefaultTemplate(model_type). kModel with line and column if the template cannot be parsed.
  static StatusOr<PromptTemplate> Make(TemplateFiles files, std::string_view model_type = "");
  // The template of the engine's model. kTokenizer as CheckTokens.
  static StatusOr<PromptTemplate> Of(const Engine& engine);

  // kInput if the template refuses the messages or fails on them, and for kwargs that it does not
  // read. Clients keep notes of their own in messages; fields that the template does not read are
  // left out.
  StatusOr<std::vector<Segment>> Render(const std::vector<Message>& messages,
                                        const ChatOptions& options, const std::tm& now) const;
  // kTokenizer if the tokenizer lacks a control token of the template's prompts.
  Status CheckTokens(const Tokenizer& tokenizer) const;

  const TemplateFacts& facts() const { return facts_; }
  const std::string& name() const { return files_.name; }
  // False if the model was not trained on chats, so that the messages' texts are joined.
  bool is_chat() const { return !files_.name.empty(); }
  const std::string& source() const { return files_.source; }
  // bos_token, eos_token and the like, with their texts.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const {
    return files_.special_tokens;
  }
  // True if the text ends inside an open thinking tag.
  bool EndsInsideThinking(const std::vector<Segment>& segments) const;

 private:
  PromptTemplate(TemplateFiles files, std::shared_ptr<const jinja::Template> main)
      : files_(std::move(files)), main_(std::move(main)) {}

  Status CheckFields(const ChatOptions& options) const;
  StatusOr<jinja::Rendered> RenderText(const std::vector<Message>& messages,
                                       const ChatOptions& options, const std::tm& now,
                                       const TemplateFacts& facts) const;
  std::vector<std::string_view> ModelTagsOf() const;

  TemplateFiles files_;
  std::shared_ptr<const jinja::Template> main_;
  std::shared_ptr<const jinja::Template> tools_;  // for prompts with tools; null: main_ is
  TemplateFacts facts_;
};

std::tm LocalTime();

}  // namespace kuiper
