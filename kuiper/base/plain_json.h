// A reader for the simplest JSON, as machines mostly write it: strings without escapes, small
// numbers. The reader of a large document uses it within an event of JsonEvents; it is many times
// faster than the parser, which looks at each character several times. It leaves everything else,
// errors too, to the parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kuiper {

// Each function consumes white space and one token, or returns false. After false the position is
// undefined: to continue, use a copy made before the call.
class PlainJson {
 public:
  explicit PlainJson(std::string_view text) : text_(text) {}

  bool Mark(char mark) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != mark) return false;
    ++at_;
    return true;
  }

  // Accepts characters of one or two bytes, as in GPT-2's byte alphabet. `string` points into the
  // text.
  bool String(std::string_view* string) {
    if (!Mark('"')) return false;
    const size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '"') {
        *string = text_.substr(begin, at_++ - begin);
        return true;
      }
      if (byte >= 0x80 ? !TakeTwoBytes(byte) : byte == '\\' || byte < 0x20) return false;
    }
    return false;
  }

  // Accepts up to nine digits.
  bool Unsigned(uint64_t* number) {
    SkipSpace();
    const size_t begin = at_;
    *number = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      *number = *number * 10 + static_cast<uint64_t>(text_[at_] - '0');
      if (at_ - begin == 9) return false;
    }
    const size_t num_digits = at_ - begin;
    return num_digits == 1 || (num_digits > 1 && text_[begin] != '0');
  }

  size_t num_taken() const { return at_; }

 private:
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  // Ends at the second byte of a well-formed character.
  bool TakeTwoBytes(unsigned char first) {
    if (first < 0xC2 || first > 0xDF || at_ + 1 == text_.size()) return false;
    return (static_cast<unsigned char>(text_[++at_]) & 0xC0) == 0x80;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace kuiper
