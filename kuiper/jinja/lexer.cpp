#include "kuiper/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/io/utf8.h"
#include "kuiper/jinja/characters.h"

namespace kuiper::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || IsDigit(c) ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = FindTag();
      if (tag == std::string_view::npos) {
        Data(source_.size(), source_.size());
        at_ = source_.size();
        break;
      }
      if (!Tag(tag)) return Status(StatusCode::kModel, Place(source_, error_at_) + ": " + error_);
    }
    tokens_.push_back({TokenKind::kEnd, source_.size(), ""});
    return std::move(tokens_);
  }

 private:
  bool Fail(size_t at, std::string message) {
    error_at_ = at;
    error_ = std::move(message);
    return false;
  }

  char At(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  bool StartsWith(size_t i, std::string_view text) const {
    return source_.substr(std::min(i, source_.size())).starts_with(text);
  }

  size_t FindTag() const {
    for (size_t i = source_.find('{', at_); i != std::string_view::npos;
         i = source_.find('{', i + 1)) {
      if (At(i + 1) == '{' || At(i + 1) == '%' || At(i + 1) == '#') return i;
    }
    return std::string_view::npos;
  }

  size_t SkipSpace(size_t i) const { return i + LeadingSpace(source_.substr(i)); }

  // Adds the text from at_ to `end`, where a tag begins; the sign at `tag` strips white space.
  void Data(size_t end, size_t tag) {
    std::string_view text = source_.substr(at_, end - at_);
    const char sign = At(tag + 2);
    if (tag < source_.size() && sign == '-') {
      text.remove_suffix(TrailingSpace(text));
    } else if (tag < source_.size() && sign != '+' && At(tag + 1) != '{') {
      // lstrip_blocks: removes space that fills the line up to the tag.
      const size_t line = text.rfind('\n') + 1;
      if ((line > 0 || line_starts_) && LeadingSpace(text.substr(line)) == text.size() - line) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) tokens_.push_back({TokenKind::kData, at_, text});
  }

  bool Tag(size_t tag) {
    Data(tag, tag);
    const char kind = At(tag + 1);
    at_ = tag + 2;
    if (At(at_) == '-' || At(at_) == '+') ++at_;
    if (kind == '#') return Comment(tag);
    if (kind == '%' && IsWord(at_, "raw")) return RawBlock(tag);
    tokens_.push_back({kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, tag,
                       source_.substr(tag, 2)});
    return Inside(tag, kind == '%' ? '%' : '}');
  }

  // True if the tag contains only this word: {% raw %}.
  bool IsWord(size_t i, std::string_view word) const {
    i = SkipSpace(i);
    if (!StartsWith(i, word)) return false;
    i = SkipSpace(i + word.size());
    return StartsWith(i, "%}") || StartsWith(i, "-%}") || StartsWith(i, "+%}");
  }

  // Moves past the end of a tag whose closing two characters begin at `close`, after `sign`.
  void EndTag(size_t close, char sign, bool trims_newline) {
    at_ = close + 2;
    if (sign == '-') {
      at_ = SkipSpace(at_);
    } else if (sign != '+' && trims_newline && At(at_) == '\n') {
      ++at_;
    }
    line_starts_ = source_[at_ - 1] == '\n';
  }
  char SignBefore(size_t close) const { return close > at_ ? source_[close - 1] : '\0'; }

  bool Comment(size_t tag) {
    const size_t close = source_.find("#}", at_);
    if (close == std::string_view::npos) return Fail(tag, "the comment has no end");
    EndTag(close, SignBefore(close), true);
    return true;
  }

  bool RawBlock(size_t tag) {
    const size_t begin = source_.find("%}", at_);
    EndTag(begin, SignBefore(begin), false);
    for (size_t end = source_.find("{%", at_); end != std::string_view::npos;
         end = source_.find("{%", end + 2)) {
      const bool has_sign = At(end + 2) == '-' || At(end + 2) == '+';
      if (!IsWord(end + 2 + (has_sign ? 1 : 0), "endraw")) continue;
      Data(end, end);
      const size_t close = source_.find("%}", end + 2);
      EndTag(close, SignBefore(close), true);
      return true;
    }
    return Fail(tag, "the raw block has no end");
  }

  // Adds tokens up to the end of the tag; `closer` is the character before its '}'.
  bool Inside(size_t tag, char closer) {
    std::vector<char> open;
    while (true) {
      at_ = SkipSpace(at_);
      if (at_ >= source_.size()) return Fail(tag, "the tag has no end");
      if (open.empty() && Closes(closer)) return true;
      const char c = source_[at_];
      bool good = true;
      if (IsDigit(c)) {
        Number();
      } else if (IsNameByte(c)) {
        size_t end = at_;
        while (end < source_.size() && IsNameByte(source_[end])) ++end;
        Take(TokenKind::kName, end);
      } else if (c == '\'' || c == '"') {
        good = String(c);
      } else {
        good = TakeOperator(&open);
      }
      if (!good) return false;
    }
  }

  bool Closes(char closer) {
    const bool block = closer == '%';
    const char sign = At(at_) == '-' || (At(at_) == '+' && block) ? At(at_) : '\0';
    const size_t close = at_ + (sign != '\0' ? 1 : 0);
    if (At(close) != closer || At(close + 1) != '}') return false;
    tokens_.push_back(
        {block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, at_, source_.substr(close, 2)});
    EndTag(close, sign, block);
    return true;
  }

  void Take(TokenKind kind, size_t end) {
    tokens_.push_back({kind, at_, source_.substr(at_, end - at_)});
    at_ = end;
  }

  void Number() {
    size_t end = at_;
    const auto digits = [&] {
      while (IsDigit(At(end)) || (At(end) == '_' && IsDigit(At(end + 1)))) ++end;
    };
    const char second = At(at_ + 1) | 0x20;
    if (source_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b')) {
      end += 2;
      while (IsNameByte(At(end))) ++end;
      Take(TokenKind::kInteger, end);
      return;
    }
    digits();
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    bool real = false;
    if (!after_dot && At(end) == '.' && IsDigit(At(end + 1))) {
      real = true;
      ++end;
      digits();
    }
    if (!after_dot && (At(end) | 0x20) == 'e') {
      const size_t sign = At(end + 1) == '+' || At(end + 1) == '-' ? 1 : 0;
      if (IsDigit(At(end + 1 + sign))) {
        real = true;
        end += 1 + sign;
        digits();
      }
    }
    Take(real ? TokenKind::kFloat : TokenKind::kInteger, end);
  }

  bool String(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Fail(at_, "the string has no end");
    Take(TokenKind::kString, end + 1);
    return true;
  }

  bool TakeOperator(std::vector<char>* open) {
    for (std::string_view op : kOperators) {
      if (!StartsWith(at_, op)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open->empty() || open->back() != c) {
          return Fail(at_, std::string("unexpected '") + c + "'");
        }
        open->pop_back();
      }
      Take(TokenKind::kOperator, at_ + op.size());
      return true;
    }
    return Fail(at_, "unexpected character " + Quoted(source_.substr(at_, 1)));
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_starts_ = true;  // a line begins at at_
  std::vector<Token> tokens_;
  size_t error_at_ = 0;
  std::string error_;
};

// Reads `count` hexadecimal digits at `*at`; takes none unless all are there.
bool TakeHex(std::string_view text, size_t* at, size_t count, char32_t* value) {
  *value = 0;
  if (*at + count > text.size()) return false;
  for (size_t i = 0; i < count; ++i) {
    const char c = text[*at + i];
    const int digit = IsDigit(c)             ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return false;
    *value = *value * 16 + static_cast<char32_t>(digit);
  }
  *at += count;
  return true;
}

// Appends the character for an escape; `*at` is the byte after the backslash.
void AppendEscape(std::string_view text, size_t* at, std::string* out) {
  constexpr std::string_view kNames = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
  const char c = text[*at];
  if (const size_t found = kNames.find(c); found != std::string_view::npos) {
    *out += kValues[found];
    ++*at;
    return;
  }
  if (c == '\n') {
    ++*at;
    return;
  }
  char32_t value = 0;
  if (c >= '0' && c <= '7') {
    for (int i = 0; i < 3 && *at < text.size() && text[*at] >= '0' && text[*at] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(text[(*at)++] - '0');
    }
    AppendUtf8(value, out);
    return;
  }
  const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  size_t after = *at + 1;
  const bool surrogate_or_more = digits > 0 && TakeHex(text, &after, digits, &value) &&
                                 (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000));
  if (after > *at + 1 && !surrogate_or_more) {
    AppendUtf8(value, out);
    *at = after;
    return;
  }
  *out += '\\';  // an unknown escape stands for itself
}

}  // namespace

std::string NormalizeSource(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      text += '\n';
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

std::string Place(std::string_view source, size_t at) {
  const std::string_view before = source.substr(0, at);
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  size_t column = 1;
  for (size_t i = before.rfind('\n') + 1; i < before.size(); ++i) {
    column += (before[i] & 0xC0) != 0x80 ? 1 : 0;
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

std::string Unescape(std::string_view literal) {
  const std::string_view text = literal.substr(1, literal.size() - 2);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at++];
      continue;
    }
    ++at;
    AppendEscape(text, &at, &out);
  }
  return out;
}

}  // namespace kuiper::jinja
