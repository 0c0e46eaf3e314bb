// Makes the values that a chat template reads of a message. They refer to the message's strings,
// which must outlive the rendering.
#pragma once

#include <deque>
#include <string_view>
#include <vector>

#include "kuiper/chat/template_facts.h"
#include "kuiper/io/chat_message.h"
#include "kuiper/jinja/template.h"

namespace kuiper {

// Origins that mark what an assistant wrote: the text of message i, and its reasoning.
inline jinja::Origin ContentOrigin(size_t i) {
  return static_cast<jinja::Origin>(2 + 2 * i);
}
inline jinja::Origin ReasoningOrigin(size_t i) {
  return ContentOrigin(i) + 1;
}

// The field of a JSON object, or null.
JsonNode* FieldOf(JsonNode* object, std::string_view key);

class MessageValues {
 public:
  MessageValues(const TemplateFacts& facts, jinja::Heap* heap) : facts_(facts), heap_(*heap) {}

  // The value of message `i` of a chat.
  jinja::Value Of(const Message& message, size_t i);

 private:
  void Set(jinja::Dict* dict, std::string_view key, const jinja::Value& value);
  jinja::Value Calls(const std::vector<ToolCall>& calls);
  jinja::Value Content(const Message& message, jinja::Origin origin);
  void AddSource(const Message& message, const JsonNode& source, jinja::Origin origin,
                 jinja::Dict* dict, size_t i);

  const TemplateFacts& facts_;
  std::deque<JsonNode> changed_;  // made here, because values refer to them
  jinja::Heap& heap_;
};

}  // namespace kuiper
