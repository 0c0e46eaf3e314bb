// Detects answers that got stuck in a loop, as those of small models without sampling may.
#pragma once

#include <string_view>

namespace kuiper {

// True if the text ends with the same words repeated at least four times and for at least 100
// bytes. Numbers may differ ("22. Anise", "23. Anise").
bool RepeatsItself(std::string_view text);

}  // namespace kuiper
