// UTF-8 checks shared by input (prompts) and output (streaming decode). Invalid input is repaired
// as Python's bytes.decode("utf-8", errors="replace") does: one U+FFFD per maximal subpart (Unicode
// 15, section 3.9, table 3-8).
#pragma once

#include <string>
#include <string_view>

namespace kuiper {

// One step of a decoder over `text` (not empty).
struct Utf8Step {
  enum class Kind { kValid, kInvalid, kIncomplete };
  Kind kind;
  int num_bytes;        // bytes of the character, the ill-formed subpart, or all that is left
  char32_t code_point;  // U+FFFD unless kValid
};

// Examines the first character. kIncomplete: the text ends inside a character that is well-formed
// so far.
Utf8Step NextUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);

// Replaces invalid UTF-8 by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string* out);

// Returns the terminal columns of a character: 2 for Chinese and most emoji, 0 for control
// characters and for accents and others that join the character before them.
int ColumnsOf(char32_t code_point);

}  // namespace kuiper
