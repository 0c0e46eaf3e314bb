#include "kuiper/base/terminal_text.h"

namespace kuiper {

std::string Dimmed(const std::string& text) {
  return "\x1b[2m" + text + "\x1b[0m";
}

std::string Wrapped(const std::vector<std::string>& words, size_t column) {
  constexpr size_t kWidth = 80;
  std::string lines;
  size_t at = column;
  for (const std::string& word : words) {
    if (at > column && at + word.size() >= kWidth) {
      lines.back() = '\n';  // instead of the blank
      lines.append(column, ' ');
      at = column;
    }
    lines += word + ' ';
    at += word.size() + 1;
  }
  if (!lines.empty()) lines.pop_back();
  return lines;
}

}  // namespace kuiper
