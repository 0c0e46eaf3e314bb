// Characters of UTF-8 texts as Python's str sees them: space, case, printability, and counting.
// Bytes that are not UTF-8 count as one character each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kuiper::jinja {

// One character at the begin of `text` (not empty).
struct Character {
  char32_t code = 0;
  size_t size = 1;  // bytes
};
Character FirstCharacter(std::string_view text);

size_t CountCharacters(std::string_view text);
// Byte of the character number `index`; text.size() when there are not so many.
size_t ByteOfCharacter(std::string_view text, size_t index);

bool IsSpace(char32_t c);      // str.isspace
bool IsLineBreak(char32_t c);  // of str.splitlines
// Bytes of space at the begin and at the end.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsCased(char32_t c);
bool IsLetter(char32_t c);     // str.isalpha
bool IsDecimal(char32_t c);    // str.isdecimal
bool IsNumeric(char32_t c);    // decimal digits, letter and other numbers
bool IsPrintable(char32_t c);  // str.isprintable

enum class Case { kUpper, kLower, kTitle };
// The character in another case; one may become several (U+00DF becomes SS).
void AppendCase(char32_t c, Case wanted, std::string* out);

}  // namespace kuiper::jinja
