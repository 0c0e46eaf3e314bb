// The lines of OpenAI's batch files. A request:
// {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}; an answer:
// {"id": ..., "custom_id": "a", "response": {...}, "error": ...}. Knows no files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/chat/chat_request.h"

namespace kuiper {

// Which request this is; numbers count from 1.
struct BatchLine {
  int64_t number = 0;
  std::optional<std::string> custom_id;
};

// What the answer is filed under; absent when the line has none.
std::optional<std::string> CustomIdOf(const JsonNode& line);

// What a line asks for; `defaults` holds what its body leaves out. kInput.
StatusOr<ChatRequest> ParseBatchLine(const JsonNode& line, const Request& defaults);

// A line of answers with its newline; `body` is a ChatResponse.
std::string BatchAnswerLine(const BatchLine& line, const std::string& body);
std::string BatchErrorLine(const BatchLine& line, const Status& status, Speller spell);

}  // namespace kuiper
