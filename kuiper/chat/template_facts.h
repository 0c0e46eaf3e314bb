// What programs must know about a model's prompts, found by rendering test conversations ("probes")
// with its chat template.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/io/chat_message.h"
#include "kuiper/io/messages_json.h"
#include "kuiper/io/thinking.h"

namespace kuiper {

struct TemplateFacts {
  std::optional<ThinkingTags> thinking = {};  // absent if the model has no thinking mode
  bool thinks_at_once = false;                // the prompt ends inside an open tag
  // The text before and after the reasoning of an answer, with the tags. "" if the template shows
  // no reasoning, or if prompts end inside an open tag.
  std::string before_reasoning = {}, after_reasoning = {};
  std::string no_thinking = {};  // what enable_thinking = false adds to the end of a prompt
  std::string tool_call = {};    // a call as the template prints it; "" = it prints no calls
  std::string tool_open = {}, tool_close = {};  // the pair of tags around calls; "" = no tags
  bool reads_tools = false;                     // prompts show the tools
  bool takes_parts = false;                     // content may be a list of parts
  bool takes_images = false;                    // a part may be an image
  bool has_system = false;                      // without a system message it writes its own
  // Forms of an assistant's message that the template takes; clients send all of these with tool
  // calls.
  bool takes_null_content = true, takes_no_content = true;
  bool takes_text_arguments = true;  // arguments of tool calls as a string of JSON
};

// Renders a conversation; "" if the template refuses it. With `takes_parts` content that is a list
// of parts stays a list, else its texts are joined.
using RenderProbe = std::function<std::string(const ParsedMessages& probe, bool takes_parts)>;
TemplateFacts FindFacts(const RenderProbe& render);

// Describes the facts for people, one line each. `name` is PromptTemplate::name().
std::vector<std::string> Describe(const TemplateFacts& facts, const std::string& name);

}  // namespace kuiper
