#include "kuiper/io/added_tokens.h"

#include <algorithm>
#include <utility>

#include "kuiper/io/unicode.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

size_t SkipSpacesLeft(std::string_view text, size_t pos, size_t floor) {
  while (pos > floor) {
    size_t start = pos - 1;
    while (start > floor && (text[start] & 0xC0) == 0x80) --start;
    if (KindOf(NextUtf8(text.substr(start)).code_point) != CharKind::kSpace) break;
    pos = start;
  }
  return pos;
}

size_t SkipSpacesRight(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(pos));
    if (KindOf(step.code_point) != CharKind::kSpace) break;
    pos += step.num_bytes;
  }
  return pos;
}

}  // namespace

void AddedTokenMatcher::Add(std::string pattern, const AddedToken& token) {
  const uint8_t first = static_cast<uint8_t>(pattern[0]);
  first_bytes_[first] = true;
  const auto before = [](const Pattern& a, const Pattern& b) {
    const auto key = [](const Pattern& p) { return static_cast<uint8_t>(p.text[0]); };
    return key(a) != key(b) ? key(a) < key(b) : a.text.size() > b.text.size();
  };
  Pattern entry{std::move(pattern), token.id, token.lstrip, token.rstrip};
  patterns_.insert(std::upper_bound(patterns_.begin(), patterns_.end(), entry, before),
                   std::move(entry));
}

const AddedTokenMatcher::Pattern* AddedTokenMatcher::LongestAt(std::string_view rest) const {
  const uint8_t first = static_cast<uint8_t>(rest[0]);
  auto it = std::partition_point(patterns_.begin(), patterns_.end(), [&](const Pattern& p) {
    return static_cast<uint8_t>(p.text[0]) < first;
  });
  for (; it != patterns_.end() && static_cast<uint8_t>(it->text[0]) == first; ++it) {
    if (rest.substr(0, it->text.size()) == it->text) return &*it;
  }
  return nullptr;
}

void AddedTokenMatcher::Find(std::string_view text, size_t begin, size_t end, size_t floor,
                             std::vector<Match>* matches) const {
  for (size_t pos = begin; pos < end;) {
    if (!first_bytes_[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    const Pattern* pattern = LongestAt(text.substr(pos, end - pos));
    if (pattern == nullptr) {
      ++pos;
      continue;
    }
    Match match{pos, pos + pattern->text.size(), pattern->id};
    pos = match.end;
    if (pattern->lstrip) match.begin = SkipSpacesLeft(text, match.begin, floor);
    match.begin = std::max(match.begin, floor);
    if (pattern->rstrip) match.end = SkipSpacesRight(text, match.end);
    pos = std::max(pos, match.end);
    floor = match.end;
    matches->push_back(match);
  }
}

}  // namespace kuiper
