// The names that llama.cpp and Ollama use for the parameters of a request.
#pragma once

#include <string>
#include <string_view>

namespace kuiper {

// Returns Kuiper's name: "repetition_penalty" for "repeat_penalty"; `name` itself if it is not
// listed.
std::string_view KuiperName(std::string_view name);

// Returns what to do instead of setting `name` in a chat; "" if unknown. `name` has underscores, as
// in "num_ctx".
std::string WhereToSet(std::string_view name);

}  // namespace kuiper
