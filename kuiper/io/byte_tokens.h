// The two ways in which vocabularies spell bytes: GPT-2's byte-level alphabet, with one printable
// character per byte, and SentencePiece's byte fallback tokens <0x00> ... <0xFF>.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kuiper {

// Returns the character that spells a byte (Radford et al. 2019, bytes_to_unicode).
char32_t ByteLevelChar(uint8_t byte);
// Returns the bytes of a byte-level token; `content` unchanged if a character stands for no byte.
std::string ByteLevelBytes(std::string_view content);

std::string ByteFallbackToken(uint8_t byte);
std::optional<char> ByteFallbackByte(std::string_view content);

}  // namespace kuiper
