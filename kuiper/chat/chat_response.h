// Answers in the form of OpenAI's chat/completions and completions. Functions of the request and
// the answer: neither times nor what the prefix cache found are in them.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"

namespace kuiper {

// The body of the answer to request `id`, one line of JSON.
std::string ChatResponse(bool is_chat, const std::string& id, const std::string& model,
                         const std::vector<Completion>& choices);

// The "code" of error objects, e.g. "context_length_exceeded"; "" for kOk.
const char* ErrorName(StatusCode code);

}  // namespace kuiper
