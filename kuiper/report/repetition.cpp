#include "kuiper/report/repetition.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace kuiper {

bool RepeatsItself(std::string_view text) {
  constexpr size_t kTail = 4096, kLongest = 800, kLeastBytes = 100, kLeastTimes = 4;
  std::string tail;  // without digits, last character first
  for (size_t i = text.size(); i-- > 0 && tail.size() < kTail;) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) tail += text[i];
  }
  // The last period may be cut anywhere, so its offset does not matter.
  for (size_t period = 1; period <= std::min(kLongest, tail.size() / kLeastTimes); ++period) {
    size_t equal = 0;
    while (period + equal < tail.size() && tail[equal] == tail[period + equal]) ++equal;
    if (equal + period < std::max(kLeastBytes, kLeastTimes * period)) continue;
    // Rules of tables and rows of numbers do not count as words.
    return std::any_of(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(period),
                       [](unsigned char c) { return c >= 0x80 || std::isalpha(c) != 0; });
  }
  return false;
}

}  // namespace kuiper
