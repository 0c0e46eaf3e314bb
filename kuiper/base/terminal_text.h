// How texts look on terminals: lines of at most 80 columns, and half intensity.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kuiper {

// In half intensity, as terminals show it.
std::string Dimmed(const std::string& text);

// Words in lines that end before column 80; those behind the first begin at `column`.
std::string Wrapped(const std::vector<std::string>& words, size_t column);

}  // namespace kuiper
