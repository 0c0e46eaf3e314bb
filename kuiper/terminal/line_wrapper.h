// Breaks the lines of a text between words as it comes, so that a terminal breaks none within a
// word. For what programs write to terminals; it knows no stream.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kuiper {

class LineWrapper {
 public:
  // What to write for the next piece of a text, in lines of at most `width` columns. A word is
  // written once it is known where it ends. Lines of code blocks, tables, and lines that are
  // indented by four columns and are no items of a list stay as they are, and so do words that no
  // line holds. Pieces end with whole characters.
  std::string Add(std::string_view text, size_t width);
  // The word that waits for its end. What comes then is another text.
  std::string Flush();
  // Another writer has ended the line.
  void StartLine() { column_ = 0; }

 private:
  void Take(std::string_view bytes, char32_t c);
  void TakeVisible(std::string_view bytes, char32_t c);
  void EndLine();
  // Writes the word that waits, and the blanks before it or a line break.
  void Place();
  // Whether the line that begins with the word that waits stays as it is.
  bool IsVerbatim();

  size_t width_ = 80;
  size_t column_ = 0;   // where the next blank goes
  std::string out_;     // not yet returned
  std::string blanks_;  // before the word that waits
  std::string word_;    // with escape sequences, which take no columns
  size_t word_columns_ = 0;
  char32_t last_ = 0;        // character of the word
  bool begins_line_ = true;  // nothing of the line is placed
  bool is_glued_ = false;    // the word continues one that was too long
  bool verbatim_ = false;    // this line
  bool in_escape_ = false;
  std::string fence_;  // that ends the code block; "" outside of one
};

// A whole text in such lines.
std::string WrapLines(std::string_view text, size_t width);

}  // namespace kuiper
