// A message while it is typed: its text, the cursor, and their layout in the rows of a screen. The
// text may have several lines. Independent of any terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kuiper {

class LineBuffer {
 public:
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // byte offset in text()

  // Moves the cursor to the end.
  void Set(std::string text);
  void Insert(std::string_view text);

  // Moves by one character, including combining ones.
  void Left() { cursor_ = Before(cursor_); }
  void Right() { cursor_ = After(cursor_); }
  void WordLeft();
  void WordRight();
  // Moves within the line with the cursor.
  void Home() { cursor_ = LineBegin(); }
  void End() { cursor_ = LineEnd(); }
  // Moves to the line above or below; returns false if there is none.
  bool Up();
  bool Down();

  void EraseBefore() { EraseFrom(Before(cursor_)); }
  void EraseAt();
  void EraseWord();
  void EraseToHome() { EraseFrom(LineBegin()); }
  // At the end of a line, erases the line break.
  void EraseToEnd();

 private:
  size_t Before(size_t at) const;
  size_t After(size_t at) const;
  size_t LineBegin() const;
  size_t LineEnd() const;
  void EraseFrom(size_t begin);

  std::string text_;
  size_t cursor_ = 0;
};

// Rows that fit `columns`; the first starts with the prompt. The cursor is always on a row.
struct ScreenText {
  std::vector<std::string> rows;
  size_t cursor_row = 0;
  int cursor_column = 0;

  bool ends_with_cursor = true;
};
ScreenText LayOut(const std::string& prompt, const LineBuffer& buffer, int columns);

}  // namespace kuiper
