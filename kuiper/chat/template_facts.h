// What the engine and the programs must know of a model's language, found out by rendering probes
// with its chat template.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/io/chat_template.h"
#include "kuiper/io/messages_json.h"
#include "kuiper/io/thinking.h"

namespace kuiper {

// What probes showed.
struct TemplateFacts {
  std::optional<ThinkingTags> thinking = {};  // absent: the model does not think
  bool thinks_at_once = false;                // the prompt ends inside an open tag
  std::string tool_call = {};  // a call as the template prints it, "" = it prints none
  std::string tool_open = {}, tool_close = {};  // the pair of tags around calls, "" = none
  bool reads_tools = false;                     // prompts with tools say so
  bool takes_parts = false;                     // content may be a list of parts
  bool takes_images = false;                    // a part may be an image
  bool has_system = false;                      // without a system message it writes one of its own
  // What an assistant's message may hold; clients send all of these with tool calls.
  bool takes_null_content = true, takes_no_content = true;
  bool takes_text_arguments = true;  // arguments of tool calls as a string of JSON
  // The built-in renderer that gives the same bytes for every probe.
  std::optional<ChatFamily> family = {};
};

// The text of a prompt, "" when the template refuses the messages, which it gets as they are but
// for parts: only with `takes_parts` content that is a list of parts stays one.
using RenderProbe = std::function<std::string(const ParsedMessages& probe, bool takes_parts)>;
TemplateFacts FindFacts(const RenderProbe& render);

// What was found, a line each. `name` is that of the template's file.
std::vector<std::string> Describe(const TemplateFacts& facts, const std::string& name);

}  // namespace kuiper
