// The lines of batch files. A request, in OpenAI's form or flat:
// {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": ...}}
// {"custom_id": "a", "messages": ...}
// An answer has the form of its request:
// {"id": ..., "custom_id": "a", "response": {...}, "error": ...}
// {"custom_id": "a", "text": ..., ..., "error": ...}
// Knows no files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/chat/chat_request.h"
#include "kuiper/chat/chat_response.h"

namespace kuiper {

// Which request this is, and what its answer looks like.
struct BatchLine {
  BatchLine() = default;
  // Numbers count from 1.
  BatchLine(int64_t number, const JsonNode& json);

  int64_t number = 0;
  std::optional<std::string> custom_id;  // absent when the line has none
  bool is_flat = false;
};

// What the line made from `json` asks for; `defaults` holds what it leaves out. kInput.
StatusOr<ChatRequest> ParseBatchLine(const BatchLine& line, const JsonNode& json,
                                     const Request& defaults);

// How the answer to this request begins, and to no other request of the file.
std::string BatchAnswerHead(const BatchLine& line);
// A line of answers with its newline.
std::string BatchAnswerLine(const BatchLine& line, bool is_chat, const Responder& responder,
                            const std::vector<Completion>& choices);
std::string BatchErrorLine(const BatchLine& line, const Status& status, Speller spell);

// The Responder::fingerprint in a line of answers; empty where there is none.
std::string FingerprintOf(const JsonNode& answer);

}  // namespace kuiper
