#include "kuiper/terminal/line_buffer.h"

#include <algorithm>

#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

constexpr int kTabColumns = 4;

bool IsBlank(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

// A unit that the cursor steps over at once.
struct Glyph {
  size_t bytes = 0;
  int columns = 0;
  std::string shown;
};

Glyph GlyphAt(std::string_view text) {
  if (text[0] == '\t') return {1, kTabColumns, std::string(kTabColumns, ' ')};
  const Utf8Step first = NextUtf8(text);
  Glyph glyph;
  glyph.bytes = static_cast<size_t>(first.num_bytes);
  glyph.columns = ColumnsOf(first.code_point);
  AppendUtf8(first.code_point, &glyph.shown);
  const auto is_ascii = [&](size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
  while (glyph.bytes < text.size() && !is_ascii(glyph.bytes)) {
    const Utf8Step next = NextUtf8(text.substr(glyph.bytes));
    const bool joins = next.kind == Utf8Step::Kind::kValid && ColumnsOf(next.code_point) == 0;
    if (!joins) break;
    glyph.bytes += static_cast<size_t>(next.num_bytes);
    AppendUtf8(next.code_point, &glyph.shown);
  }
  return glyph;
}

}  // namespace

void LineBuffer::Set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void LineBuffer::Insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

size_t LineBuffer::After(size_t at) const {
  return at < text_.size() ? at + GlyphAt(std::string_view(text_).substr(at)).bytes : at;
}

size_t LineBuffer::Before(size_t at) const {
  // Glyphs are found from the start of the line: no glyph contains a line break.
  size_t begin = at < 2 ? 0 : text_.rfind('\n', at - 2) + 1;
  while (begin < at && After(begin) < at) begin = After(begin);
  return begin;
}

size_t LineBuffer::LineBegin() const {
  return cursor_ == 0 ? 0 : text_.rfind('\n', cursor_ - 1) + 1;
}

size_t LineBuffer::LineEnd() const {
  return std::min(text_.find('\n', cursor_), text_.size());
}

void LineBuffer::WordLeft() {
  while (cursor_ > 0 && IsBlank(text_[cursor_ - 1])) --cursor_;
  while (cursor_ > 0 && !IsBlank(text_[cursor_ - 1])) --cursor_;
}

void LineBuffer::WordRight() {
  while (cursor_ < text_.size() && IsBlank(text_[cursor_])) ++cursor_;
  while (cursor_ < text_.size() && !IsBlank(text_[cursor_])) ++cursor_;
}

bool LineBuffer::Up() {
  const size_t begin = LineBegin();
  if (begin == 0) return false;
  const size_t column = cursor_ - begin;
  cursor_ = begin - 1;
  const size_t above = LineBegin(), target = std::min(above + column, cursor_);
  for (cursor_ = above; After(cursor_) <= target && cursor_ < target;) Right();
  return true;
}

bool LineBuffer::Down() {
  const size_t end = LineEnd();
  if (end == text_.size()) return false;
  const size_t column = cursor_ - LineBegin();
  cursor_ = end + 1;
  const size_t target = std::min(cursor_ + column, LineEnd());
  while (After(cursor_) <= target && cursor_ < target) Right();
  return true;
}

void LineBuffer::EraseFrom(size_t begin) {
  text_.erase(begin, cursor_ - begin);
  cursor_ = begin;
}

void LineBuffer::EraseAt() {
  text_.erase(cursor_, After(cursor_) - cursor_);
}

void LineBuffer::EraseWord() {
  const size_t end = cursor_;
  WordLeft();
  text_.erase(cursor_, end - cursor_);
}

void LineBuffer::EraseToEnd() {
  const size_t end = LineEnd();
  text_.erase(cursor_, end == cursor_ ? After(cursor_) - cursor_ : end - cursor_);
}

ScreenText LayOut(const std::string& prompt, const LineBuffer& buffer, int columns) {
  const std::string all = prompt + buffer.text();
  const size_t cursor = prompt.size() + buffer.cursor();
  ScreenText screen;
  screen.rows.emplace_back();
  int column = 0;
  const auto new_row = [&] {
    screen.rows.emplace_back();
    column = 0;
  };
  for (size_t at = 0; at <= all.size();) {
    const bool at_end = at == all.size();
    const bool breaks = !at_end && all[at] == '\n';
    const Glyph glyph =
        at_end || breaks ? Glyph{1, 0, ""} : GlyphAt(std::string_view(all).substr(at));
    const bool has_cursor = at <= cursor && cursor < at + glyph.bytes;
    // The cursor needs a column of its own, also after the last character.
    if (column + std::max(glyph.columns, has_cursor ? 1 : 0) > columns) new_row();
    if (has_cursor) {
      screen.cursor_row = screen.rows.size() - 1;
      screen.cursor_column = column;
    }
    screen.rows.back() += glyph.shown;
    column += glyph.columns;
    if (breaks) new_row();
    at += glyph.bytes;
  }
  screen.ends_with_cursor = cursor == all.size();
  return screen;
}

}  // namespace kuiper
