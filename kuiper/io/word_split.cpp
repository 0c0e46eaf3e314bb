#include "kuiper/io/word_split.h"

#include <array>

#include "kuiper/io/unicode.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen35[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                           R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class Kind : uint8_t { kEnd, kWord, kNumber, kNewLine, kSpace, kSymbol };

struct Character {
  Kind kind = Kind::kEnd;
  size_t end = 0;  // where the next one starts
};

// Finds the parts of one text, from left to right.
class Parts {
 public:
  Parts(std::string_view text, bool marks_in_words) : text_(text), marks_(marks_in_words) {}

  // Returns the end of the part at `begin`, which is before the text's end. The alternatives are in
  // the order of the pattern.
  size_t End(size_t begin, int max_digits) const {
    if (text_[begin] == '\'') {
      const size_t length = Contraction(text_.substr(begin + 1), true);
      if (length != 0) return begin + 1 + length;
    }
    const Character first = At(begin);
    if (first.kind == Kind::kWord) return Run(first.end, Kind::kWord);
    if (first.kind == Kind::kNumber) {
      size_t end = first.end;
      for (int i = 1; i < max_digits; ++i) {
        const Character next = At(end);
        if (next.kind != Kind::kNumber) break;
        end = next.end;
      }
      return end;
    }
    if (first.kind != Kind::kNewLine) {
      const Character next = At(first.end);
      if (next.kind == Kind::kWord) return Run(next.end, Kind::kWord);
      if (first.kind == Kind::kSymbol) return Run(Run(first.end, Kind::kSymbol), Kind::kNewLine);
      if (text_[begin] == ' ' && next.kind == Kind::kSymbol) {
        return Run(Run(next.end, Kind::kSymbol), Kind::kNewLine);
      }
    }
    return SpaceEnd(begin, first, true);
  }

  // Does what End does, for GPT-2's pattern.
  size_t Gpt2End(size_t begin) const {
    if (text_[begin] == '\'') {
      const size_t length = Contraction(text_.substr(begin + 1), false);
      if (length != 0) return begin + 1 + length;
    }
    const Character first = At(begin);
    const Character word = text_[begin] == ' ' ? At(first.end) : first;
    switch (word.kind) {
      case Kind::kWord:
      case Kind::kNumber:
      case Kind::kSymbol:
        return Run(word.end, word.kind);
      default:
        return SpaceEnd(begin, first, false);
    }
  }

 private:
  Character At(size_t pos) const {
    if (pos >= text_.size()) return {};
    static constexpr std::array<Kind, 128> kAscii = [] {
      std::array<Kind, 128> kinds;
      kinds.fill(Kind::kSymbol);
      for (char c = '0'; c <= '9'; ++c) kinds[c] = Kind::kNumber;
      for (char c = 'a'; c <= 'z'; ++c) kinds[c] = kinds[c - 'a' + 'A'] = Kind::kWord;
      for (const char c : {' ', '\t', '\v', '\f'}) kinds[c] = Kind::kSpace;
      kinds['\r'] = kinds['\n'] = Kind::kNewLine;
      return kinds;
    }();
    const auto byte = static_cast<uint8_t>(text_[pos]);
    if (byte < 128) return {kAscii[byte], pos + 1};
    const Utf8Step step = NextUtf8(text_.substr(pos));
    return {KindBeyondAscii(step.code_point), pos + step.num_bytes};
  }

  Kind KindBeyondAscii(char32_t c) const {
    switch (KindOf(c)) {
      case CharKind::kLetter:
        return Kind::kWord;
      case CharKind::kNumber:
        return Kind::kNumber;
      case CharKind::kSpace:
        return Kind::kSpace;
      case CharKind::kMark:
        return marks_ ? Kind::kWord : Kind::kSymbol;
      case CharKind::kOther:
        break;
    }
    return Kind::kSymbol;
  }

  // Returns the end of the characters of `kind` that start at `pos`.
  size_t Run(size_t pos, Kind kind) const {
    for (Character c = At(pos); c.kind == kind; c = At(pos)) pos = c.end;
    return pos;
  }

  // Returns the length of a contraction after an apostrophe; 0 if there is none. With any_case,
  // U+017F is an s.
  static size_t Contraction(std::string_view text, bool any_case) {
    if (any_case && text.starts_with("\u017F")) return 2;
    const auto letter = [&](size_t i) -> char {
      if (i >= text.size() || (text[i] & 0x80) != 0) return '\0';
      return any_case ? static_cast<char>(text[i] | 0x20) : text[i];
    };
    switch (letter(0)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 1;
      case 'r':
      case 'v':
        return letter(1) == 'e' ? 2 : 0;
      case 'l':
        return letter(1) == 'l' ? 2 : 0;
      default:
        return 0;
    }
  }

  // Returns the end of white space: after its last line end (if `breaks_lines`). If that does not
  // apply, all of it at the end of the text; elsewhere, without its last character unless it is the
  // only one.
  size_t SpaceEnd(size_t begin, Character first, bool breaks_lines) const {
    size_t after_new_line = 0, before_last = begin, end = begin;
    for (Character c = first; c.kind == Kind::kSpace || c.kind == Kind::kNewLine; c = At(end)) {
      before_last = end;
      end = c.end;
      if (c.kind == Kind::kNewLine) after_new_line = end;
    }
    if (breaks_lines && after_new_line != 0) return after_new_line;
    return end == text_.size() || before_last == begin ? end : before_last;
  }

  std::string_view text_;
  bool marks_;
};

}  // namespace

std::optional<WordSplit> WordSplit::ForPattern(std::string_view pattern) {
  if (pattern == kGpt2) return WordSplit(Style::kGpt2, false, 0);
  if (pattern == kQwen2) return WordSplit(Style::kLlama3, false, 1);
  if (pattern == kQwen35) return WordSplit(Style::kLlama3, true, 1);
  if (pattern == kLlama3) return WordSplit(Style::kLlama3, false, 3);
  return std::nullopt;
}

void WordSplit::Split(std::string_view text, std::vector<std::string_view>* parts) const {
  const Parts of_text(text, marks_in_words_);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end =
        style_ == Style::kGpt2 ? of_text.Gpt2End(begin) : of_text.End(begin, max_digits_);
    parts->push_back(text.substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace kuiper
