// Answers in the form of OpenAI's chat/completions and completions, and a flat form for scripts.
// Functions of the request and the answer: neither times nor what the prefix cache found are in
// them.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"

namespace kuiper {

// Who answered.
struct Responder {
  std::string model;
  std::string fingerprint;  // of all that the answer depends on besides the request; may be empty
};

// The body of the answer to request `id`, one line of JSON.
std::string ChatResponse(bool is_chat, const std::string& id, const Responder& responder,
                         const std::vector<Completion>& choices);

// One line of JSON without braces: "text", "reasoning", "finish_reason" as Kuiper names it,
// "token_ids_fnv1a64" and "seed", or "choices" of these where several were asked for; "usage" and
// "system_fingerprint".
std::string FlatResponse(const Responder& responder, const std::vector<Completion>& choices);

// OpenAI knows two reasons, "stop" and "length"; the context is a limit of the length as well.
const char* FinishName(FinishReason reason);

// The "code" of error objects, e.g. "context_length_exceeded"; "" for kOk.
const char* ErrorName(StatusCode code);

}  // namespace kuiper
