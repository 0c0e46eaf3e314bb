// Splits declarations of PTX into words, for ptx_module.cpp and ptx_registers.cpp.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace kuiper::simt::ptx {

// Returns names, numbers and directives (.align) as one word each, and every other character as a
// word.
inline std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  bool previous_is_name = false;
  for (const char c : text) {
    const bool is_name = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' ||
                         c == '.' || c == '%';
    if (is_name && previous_is_name) {
      words.back() += c;
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      words.emplace_back(1, c);
    }
    previous_is_name = is_name;
  }
  return words;
}

// Parses a number without a sign; returns false if the word is not one.
inline bool ReadNumber(const std::string& word, size_t* number) {
  if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos || word.size() > 9)
    return false;
  *number = std::strtoul(word.c_str(), nullptr, 10);
  return true;
}

// Returns the bytes of .pred (1), .b8 to .b64, .u8, .s8, .f16 and so on in *bytes; false if the
// word is not a type.
inline bool ReadType(const std::string& word, size_t* bytes) {
  size_t bits = 0;
  *bytes = 1;
  if (word == ".pred") return true;
  if (word.size() < 3 || word[0] != '.' ||
      std::string_view("bsuf").find(word[1]) == std::string_view::npos ||
      !ReadNumber(word.substr(2), &bits))
    return false;
  *bytes = bits / 8;
  return bits == 8 || bits == 16 || bits == 32 || bits == 64;
}

}  // namespace kuiper::simt::ptx
