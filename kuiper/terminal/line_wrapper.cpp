#include "kuiper/terminal/line_wrapper.h"

#include <algorithm>
#include <utility>

#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

constexpr size_t kTab = 8;
constexpr size_t kCodeIndent = 4;  // as in Markdown
constexpr char32_t kJoiner = 0x200D;

// Chinese and Japanese punctuation that begins no line, and brackets that end none.
constexpr std::u32string_view kNeverFirst = U"、。，．：；？！）］｝〉》」』】〕…—ー～％";
constexpr std::u32string_view kNeverLast = U"（［｛〈《「『【〔";

size_t ColumnsOfBlanks(std::string_view blanks) {
  size_t columns = 0;
  for (const char c : blanks) columns += c == '\t' ? kTab : 1;
  return columns;
}

std::string WithoutEscapes(std::string_view word) {
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\x1b') {
      i = std::min(word.find('m', i), word.size());
    } else {
      text += word[i];
    }
  }
  return text;
}

// "-", "12.", "3)"
bool IsListMarker(std::string_view word) {
  if (word == "-" || word == "*" || word == "+") return true;
  const size_t digits = word.find_first_not_of("0123456789");
  return digits != 0 && digits + 1 == word.size() && (word.back() == '.' || word.back() == ')');
}

}  // namespace

std::string LineWrapper::Add(std::string_view text, size_t width) {
  width_ = std::max<size_t>(width, 1);
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    Take(text.substr(0, step.num_bytes), step.code_point);
    text.remove_prefix(step.num_bytes);
  }
  return std::exchange(out_, "");
}

std::string LineWrapper::Flush() {
  Place();
  return std::exchange(*this, LineWrapper()).out_;
}

void LineWrapper::Take(std::string_view bytes, char32_t c) {
  if (in_escape_ || c == U'\x1b') {
    word_ += bytes;
    in_escape_ = c == U'\x1b' || c == U'[' || c < U'@' || c > U'~';
  } else if (c == U'\n') {
    EndLine();
  } else if (c == U' ' || c == U'\t') {
    Place();
    is_glued_ = false;
    blanks_ += bytes;
  } else {
    TakeVisible(bytes, c);
  }
  if (verbatim_) Place();
}

void LineWrapper::TakeVisible(std::string_view bytes, char32_t c) {
  const auto columns = static_cast<size_t>(ColumnsOf(c));
  // A line may break before and after each wide character.
  const bool may_break =
      columns > 0 && last_ != 0 && last_ != kJoiner && (columns > 1 || ColumnsOf(last_) > 1) &&
      kNeverFirst.find(c) == kNeverFirst.npos && kNeverLast.find(last_) == kNeverLast.npos;
  if (may_break) Place();
  word_ += bytes;
  word_columns_ += columns;
  if (columns > 0 || c == kJoiner) last_ = c;
  if (word_columns_ < width_) return;
  Place();
  is_glued_ = true;
}

void LineWrapper::EndLine() {
  Place();
  if (column_ + ColumnsOfBlanks(blanks_) <= width_) out_ += blanks_;
  blanks_.clear();
  out_ += '\n';
  column_ = 0;
  is_glued_ = false;
  begins_line_ = true;
  verbatim_ = false;
}

bool LineWrapper::IsVerbatim() {
  const std::string word = WithoutEscapes(word_);
  const size_t marks = std::min(word.find_first_not_of(word[0]), word.size());
  const bool is_fence = (word[0] == '`' || word[0] == '~') && marks >= 3;
  if (is_fence && fence_.empty()) {
    // A fence that ends in its own line is a piece of code in a sentence.
    if (word.find(word[0], marks) == std::string::npos) fence_ = word.substr(0, marks);
    return true;
  }
  if (is_fence && word.starts_with(fence_)) {
    fence_.clear();
    return true;
  }
  const bool is_indented = ColumnsOfBlanks(blanks_) >= kCodeIndent;
  return !fence_.empty() || word[0] == '|' || (is_indented && !IsListMarker(word));
}

void LineWrapper::Place() {
  if (word_columns_ > 0 && begins_line_) {
    verbatim_ = IsVerbatim();
    begins_line_ = false;
  }
  if (word_columns_ == 0 && !verbatim_) {  // escape sequences precede pending blanks
    out_ += std::exchange(word_, "");
    return;
  }
  const size_t blanks = ColumnsOfBlanks(blanks_);
  if (!verbatim_ && !is_glued_ && column_ > 0 && column_ + blanks + word_columns_ > width_) {
    out_ += '\n';
    column_ = 0;
  } else {
    out_ += blanks_;
    column_ += blanks;
  }
  out_ += word_;
  column_ += word_columns_;
  if (column_ > width_) column_ = (column_ - 1) % width_ + 1;
  blanks_.clear();
  word_.clear();
  word_columns_ = 0;
  last_ = 0;
  is_glued_ = false;
}

std::string WrapLines(std::string_view text, size_t width) {
  LineWrapper wrapper;
  std::string lines = wrapper.Add(text, width);
  return lines + wrapper.Flush();
}

}  // namespace kuiper
