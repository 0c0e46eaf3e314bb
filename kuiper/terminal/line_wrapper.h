// Breaks the lines of a streamed text between words, so that the terminal breaks none within a
// word. For programs that write to terminals; it writes to no stream itself.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kuiper {

class LineWrapper {
 public:
  // Returns what to write for the next piece of a text, in lines of at most `width` columns. A word
  // is returned once its end is known. Some lines stay as they are: lines of code blocks, tables,
  // and lines indented by four columns that are not list items. So do words longer than a line.
  // Pieces end with whole characters.
  std::string Add(std::string_view text, size_t width);
  // Returns the pending word. The next Add starts another text.
  std::string Flush();
  // Call after another writer has ended the line.
  void StartLine() { column_ = 0; }

 private:
  void Take(std::string_view bytes, char32_t c);
  void TakeVisible(std::string_view bytes, char32_t c);
  void EndLine();
  // Outputs the pending word, after its blanks or a line break.
  void Place();
  // True if the line that begins with the pending word stays as it is.
  bool IsVerbatim();

  size_t width_ = 80;
  size_t column_ = 0;   // column of the next blank
  std::string out_;     // not yet returned
  std::string blanks_;  // before the pending word
  std::string word_;    // the pending word, with escape sequences, which take no columns
  size_t word_columns_ = 0;
  char32_t last_ = 0;        // last character of the word
  bool begins_line_ = true;  // nothing of the line has been placed
  bool is_glued_ = false;    // the word continues one that was too long
  bool verbatim_ = false;    // this line stays as it is
  bool in_escape_ = false;
  std::string fence_;  // the fence that ends the code block; "" outside of one
};

// Wraps a whole text in the same way.
std::string WrapLines(std::string_view text, size_t width);

}  // namespace kuiper
