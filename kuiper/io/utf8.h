// UTF-8 checks shared by the way in (prompts) and the way out (streaming decode). Invalid input is
// repaired as Python's bytes.decode("utf-8", errors="replace") does: one U+FFFD per maximal subpart
// (Unicode 15, section 3.9, table 3-8).
#pragma once

#include <string>
#include <string_view>

namespace kuiper {

// One step of a decoder over `text` (not empty).
struct Utf8Step {
  enum class Kind { kValid, kInvalid, kIncomplete };
  Kind kind;
  int num_bytes;        // of the character, of the ill-formed subpart, or all that is left
  char32_t code_point;  // U+FFFD unless kValid
};

// Looks at the first character. kIncomplete: the text ends inside a so far well-formed character.
Utf8Step NextUtf8(std::string_view text);

bool IsValidUtf8(std::string_view text);

// Replaces what is not UTF-8 by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string* out);

// Columns of a terminal that a character takes: 2 for Chinese and most emoji, 0 for accents and
// what else joins the character before it, and for control characters.
int ColumnsOf(char32_t code_point);

}  // namespace kuiper
