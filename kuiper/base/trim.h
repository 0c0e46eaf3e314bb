// Trims blanks around a text.
#pragma once

#include <algorithm>
#include <string_view>

namespace kuiper {

// Removes blanks, tabs and line breaks at both ends.
inline std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace kuiper
