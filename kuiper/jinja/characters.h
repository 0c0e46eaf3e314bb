// Characters of UTF-8 texts as in Python's str: space, case, printability, and counting. Each byte
// of invalid UTF-8 counts as one character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kuiper::jinja {

// The first character of a text that is not empty.
struct Character {
  char32_t code = 0;
  size_t size = 1;  // bytes
};
Character FirstCharacter(std::string_view text);

size_t CountCharacters(std::string_view text);
// Returns the first byte of character number `index`; text.size() if there are fewer characters.
size_t ByteOfCharacter(std::string_view text, size_t index);

bool IsSpace(char32_t c);      // str.isspace
bool IsLineBreak(char32_t c);  // as in str.splitlines
// Return the bytes of white space at the beginning and at the end.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsCased(char32_t c);
bool IsLetter(char32_t c);     // str.isalpha
bool IsDecimal(char32_t c);    // str.isdecimal
bool IsNumeric(char32_t c);    // decimal digits, letter numbers and other numbers
bool IsPrintable(char32_t c);  // str.isprintable

enum class Case { kUpper, kLower, kTitle };
// Appends the character in another case; this may give several characters (U+00DF becomes SS).
void AppendCase(char32_t c, Case wanted, std::string* out);

}  // namespace kuiper::jinja
