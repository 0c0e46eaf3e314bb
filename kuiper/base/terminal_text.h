// Formats text for terminals: lines of at most 80 columns, and half intensity.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kuiper {

// Returns `text` in half intensity (dim).
std::string Dimmed(const std::string& text);

// Joins words into lines that end before column 80; lines after the first begin at `column`.
std::string Wrapped(const std::vector<std::string>& words, size_t column);

}  // namespace kuiper
