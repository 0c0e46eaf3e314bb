// The chat template that came with a model: messages -> the prompt's text, as segments of which
// only the template's own may hold control tokens. What the engine and the programs must know of
// the model's language (its thinking tags, how it calls tools) is found out by rendering probes.
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
#include "kuiper/io/chat_template.h"
#include "kuiper/io/template_files.h"

namespace kuiper {
namespace jinja {
class Template;
struct Rendered;
}  // namespace jinja

class PromptTemplate {
 public:
  // Parses and probes. Absent when the files hold no template; kModel with line and column.
  static StatusOr<std::optional<PromptTemplate>> Make(const TemplateFiles& files);

  // kInput when the template refuses the messages or fails on them, and for kwargs that it does not
  // read. Clients keep notes of their own in messages: what no template reads of them is left out.
  StatusOr<std::vector<Segment>> Render(const std::vector<Message>& messages,
                                        const ChatOptions& options, const std::tm& now) const;
  // kTokenizer when a control token of the template's prompts is no token.
  Status CheckTokens(const Tokenizer& tokenizer) const;

  const TemplateFacts& facts() const { return facts_; }
  const std::string& name() const { return files_.name; }
  const std::string& source() const { return files_.source; }
  // bos_token, eos_token and the like, with their texts.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const {
    return files_.special_tokens;
  }
  // Whether the text ends inside an open thinking tag.
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
  std::shared_ptr<const jinja::Template> tools_;  // null: main_ writes tools as well
  TemplateFacts facts_;
};

// The local time.
std::tm LocalTime();

}  // namespace kuiper
