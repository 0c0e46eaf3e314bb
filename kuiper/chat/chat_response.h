// Writes answers in OpenAI's chat/completions and completions formats, and in a flat format for
// scripts. They depend only on the request and the answer: they contain neither times nor prefix
// cache hits.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"

namespace kuiper {

// Identifies the model and settings that produced an answer.
struct Responder {
  std::string model;
  std::string fingerprint;  // hash of all that affects answers besides the request; may be empty
};

// Returns the response body for request `id` as one line of JSON.
std::string ChatResponse(bool is_chat, const std::string& id, const Responder& responder,
                         const std::vector<Completion>& choices);

// Returns one line of JSON without braces, with "usage", "system_fingerprint" and the choice:
// "text", "reasoning", "finish_reason" (Kuiper's names), "token_ids_fnv1a64" and "seed". If several
// choices were requested, "choices" lists them.
std::string FlatResponse(const Responder& responder, const std::vector<Completion>& choices);

// Maps to OpenAI's two reasons, "stop" and "length"; a full context counts as "length".
const char* FinishName(FinishReason reason);

// Returns the "code" of error objects, e.g. "context_length_exceeded"; "" for kOk.
const char* ErrorName(StatusCode code);

}  // namespace kuiper
