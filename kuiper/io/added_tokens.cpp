#include "kuiper/io/added_tokens.h"

#include <algorithm>
#include <utility>

#include "kuiper/io/split_regex.h"
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

// True if `text` begins with a Unicode word character, as Rust's \w: letters (also circled and
// squared ones), marks, digits, connectors and joiners.
bool StartsWithWord(std::string_view text) {
  static const StatusOr<SplitRegex> word = SplitRegex::Compile(
      "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\u200C\u200D\u24B6-\u24E9\U0001F130-\U0001F149"
      "\U0001F150-\U0001F169\U0001F170-\U0001F189]");
  if (text.empty() || !word.ok()) return false;
  std::vector<SplitPart> parts;
  word->Cut(text.substr(0, NextUtf8(text).num_bytes), &parts);
  return parts.front().is_match;
}

bool EndsWithWord(std::string_view text) {
  if (text.empty()) return false;
  size_t start = text.size() - 1;
  while (start > 0 && (text[start] & 0xC0) == 0x80) --start;
  return StartsWithWord(text.substr(start));
}

}  // namespace

void AddedTokenMatcher::Add(std::string pattern, const AddedToken& token,
                            std::vector<Writer> writers) {
  const uint8_t first = static_cast<uint8_t>(pattern[0]);
  first_bytes_[first] = true;
  const auto before = [](const Pattern& a, const Pattern& b) {
    const auto key = [](const Pattern& p) { return static_cast<uint8_t>(p.text[0]); };
    return key(a) != key(b) ? key(a) < key(b) : a.text.size() > b.text.size();
  };
  writers.resize(pattern.size(), Writer::kTemplate);
  Pattern entry{std::move(pattern), std::move(writers), token.id,
                token.lstrip,       token.rstrip,       token.single_word};
  patterns_.insert(std::upper_bound(patterns_.begin(), patterns_.end(), entry, before),
                   std::move(entry));
}

bool AddedTokenMatcher::IsWrittenByUser(const Search& search, size_t pos, const Pattern& pattern) {
  for (size_t i = 0; i < pattern.text.size() && !search.writers.empty(); ++i) {
    if (search.writers[pos + i] == Writer::kUser && pattern.writers[i] != Writer::kNormalizer) {
      return true;
    }
  }
  return false;
}

const AddedTokenMatcher::Pattern* AddedTokenMatcher::LongestAt(const Search& search,
                                                               size_t pos) const {
  const std::string_view rest = search.text.substr(pos, search.end - pos);
  const uint8_t first = static_cast<uint8_t>(rest[0]);
  auto it = std::partition_point(patterns_.begin(), patterns_.end(), [&](const Pattern& p) {
    return static_cast<uint8_t>(p.text[0]) < first;
  });
  for (; it != patterns_.end() && static_cast<uint8_t>(it->text[0]) == first; ++it) {
    if (rest.starts_with(it->text) && !IsWrittenByUser(search, pos, *it)) return &*it;
  }
  return nullptr;
}

void AddedTokenMatcher::Find(std::string_view text, size_t begin, size_t end, size_t floor,
                             std::vector<Match>* matches) const {
  Find({text, begin, end, floor, {}}, matches);
}

void AddedTokenMatcher::FindOutsideUserText(std::string_view text, std::span<const Writer> writers,
                                            std::vector<Match>* matches) const {
  Find({text, 0, text.size(), 0, writers}, matches);
}

void AddedTokenMatcher::Find(const Search& search, std::vector<Match>* matches) const {
  const std::string_view text = search.text;
  size_t floor = search.floor;
  for (size_t pos = search.begin; pos < search.end;) {
    const Pattern* pattern =
        first_bytes_[static_cast<uint8_t>(text[pos])] ? LongestAt(search, pos) : nullptr;
    if (pattern == nullptr) {
      ++pos;
      continue;
    }
    Match match{pos, pos + pattern->text.size(), pattern->id};
    pos = match.end;
    if (pattern->single_word &&
        (EndsWithWord(text.substr(0, match.begin)) || StartsWithWord(text.substr(match.end)))) {
      continue;
    }
    if (pattern->lstrip) match.begin = SkipSpacesLeft(text, match.begin, floor);
    match.begin = std::max(match.begin, floor);
    if (pattern->rstrip) match.end = SkipSpacesRight(text, match.end);
    pos = std::max(pos, match.end);
    floor = match.end;
    matches->push_back(match);
  }
}

}  // namespace kuiper
