#include "kuiper/base/status.h"

#include <algorithm>

namespace kuiper {
namespace {

// Enclose a parameter's name. Shown texts contain no control characters, so these are free.
constexpr char kBegin = '\x0E';
constexpr char kEnd = '\x0F';

}  // namespace

std::string Param(std::string_view name) {
  return kBegin + std::string(name) + kEnd;
}

std::string BareName(std::string_view name) {
  return std::string(name);
}

std::string SpellParams(std::string_view text, Speller spell) {
  std::string spelled;
  while (true) {
    const size_t begin = std::min(text.find(kBegin), text.size());
    const size_t end = text.find(kEnd, begin);
    if (end == std::string_view::npos) return spelled.append(text);
    spelled.append(text.substr(0, begin)).append(spell(text.substr(begin + 1, end - begin - 1)));
    text.remove_prefix(end + 1);
  }
}

std::string Status::message(Speller spell) const {
  std::string text = SpellParams(message_, spell);
  for (char& c : text) {
    const bool mark = spell == Param && (c == kBegin || c == kEnd);
    if ((static_cast<unsigned char>(c) < 0x20 || c == 0x7F) && !mark) c = ' ';
  }
  return text;
}

std::string Status::hint(Speller spell) const {
  return SpellParams(hint_, spell);
}

}  // namespace kuiper
