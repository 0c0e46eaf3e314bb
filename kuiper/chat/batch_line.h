// The lines of batch files. A request is in OpenAI's format or flat:
// {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": ...}}
// {"custom_id": "a", "messages": ...}
// An answer has the format of its request:
// {"id": ..., "custom_id": "a", "response": {...}, "error": ...}
// {"custom_id": "a", "text": ..., ..., "error": ...}
// Independent of files.
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

// Identifies a request, and the format of its answer.
struct BatchLine {
  BatchLine() = default;
  // `number` counts from 1.
  BatchLine(int64_t number, const JsonNode& json);

  int64_t number = 0;
  std::optional<std::string> custom_id;  // absent if the line has none
  bool is_flat = false;
};

// Parses the request in `json`; `defaults` holds the values of absent fields. kInput.
StatusOr<ChatRequest> ParseBatchLine(const BatchLine& line, const JsonNode& json,
                                     const Request& defaults);

// Returns the beginning of the answer line; it is unique among the requests of the file.
std::string BatchAnswerHead(const BatchLine& line);
// Return an answer line with its newline.
std::string BatchAnswerLine(const BatchLine& line, bool is_chat, const Responder& responder,
                            const std::vector<Completion>& choices);
std::string BatchErrorLine(const BatchLine& line, const Status& status, Speller spell);

// Returns the Responder::fingerprint in an answer line; empty if there is none.
std::string FingerprintOf(const JsonNode& answer);

}  // namespace kuiper
