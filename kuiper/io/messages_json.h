// OpenAI-style messages in JSON -> Message. Used for files of messages, sessions and batches.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/io/chat_template.h"

namespace kuiper {

struct ParsedMessages {
  std::vector<Message> messages;        // not empty
  std::vector<std::string> tools_json;  // for ChatOptions
  std::optional<bool> enable_thinking;  // of chat_template_kwargs
};

// Either an array of messages or {"messages": [...], "tools": [...], "chat_template_kwargs":
// {"enable_thinking": bool}}; other keys of the object are ignored. Errors are kInput.
StatusOr<ParsedMessages> ParseMessagesJson(std::string_view json);
StatusOr<ParsedMessages> ParseMessages(const JsonNode& root);

// JSON text printed as Python's json.dumps(value, ensure_ascii=False) prints it: ", " and ": ",
// keys in their order, numbers as Python's int and float. Errors are kInput.
StatusOr<std::string> PythonJson(std::string_view json);

}  // namespace kuiper
