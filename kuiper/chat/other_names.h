// What llama.cpp and Ollama call the parameters of a request, for people who know these names.
#pragma once

#include <string>
#include <string_view>

namespace kuiper {

// The name that a parameter has here: "repetition_penalty" for "repeat_penalty"; `name` itself if
// it is no other name of one.
std::string_view NameHere(std::string_view name);

// What to do instead of setting `name` in a chat, "" if nothing is known about it. `name` has
// underscores, as in "num_ctx".
std::string WhereToSet(std::string_view name);

}  // namespace kuiper
