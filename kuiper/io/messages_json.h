// Parses OpenAI-style messages in JSON into Message. Used for files of messages, sessions and
// batches.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/io/chat_message.h"

namespace kuiper {

struct ParsedMessages {
  std::vector<Message> messages;        // not empty
  std::vector<std::string> tools_json;  // for ChatOptions
  std::optional<bool> enable_thinking;  // from chat_template_kwargs
  JsonNode template_kwargs = {};        // the remaining chat_template_kwargs; an object, or null
  JsonNode documents = {};              // a list, or null
  std::optional<bool> add_generation_prompt = {};
  bool continue_final_message = false;  // the completion continues the last message
};

// Accepts an array of messages or {"messages": [...], "tools": [...], "documents": [...],
// "add_generation_prompt": bool, "continue_final_message": bool, "chat_template_kwargs": {...}}.
// Other keys of the object are ignored. Errors are kInput.
StatusOr<ParsedMessages> ParseMessagesJson(std::string_view json);
StatusOr<ParsedMessages> ParseMessages(const JsonNode& root);

// True if ParseMessages reads this key of the object.
bool IsMessagesField(std::string_view key);
// Returns kInput for a key of the object that is not used, except the keys that saved conversations
// have.
Status CheckMessagesFields(const JsonNode& root);

// Prints JSON text as Python's json.dumps(value, ensure_ascii=False): ", " and ": " as separators,
// keys in their order, numbers as Python's int and float. Errors are kInput.
StatusOr<std::string> PythonJson(std::string_view json);

}  // namespace kuiper
