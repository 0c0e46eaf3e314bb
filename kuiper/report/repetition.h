// Whether an answer got stuck, as those of small models without sampling may.
#pragma once

#include <string_view>

namespace kuiper {

// True if the text ends with the same words over and over, four times at least and for 100 bytes;
// numbers may differ ("22. Anise", "23. Anise").
bool RepeatsItself(std::string_view text);

}  // namespace kuiper
