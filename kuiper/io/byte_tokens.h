// The two ways vocabularies spell bytes: GPT-2's byte-level alphabet, one printable character per
// byte, and SentencePiece's byte fallback tokens <0x00> ... <0xFF>.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kuiper {

// The character that spells a byte (Radford et al. 2019, bytes_to_unicode).
char32_t ByteLevelChar(uint8_t byte);
// The bytes a byte-level token stands for; its own bytes if it has a character of no byte.
std::string ByteLevelBytes(std::string_view content);

std::string ByteFallbackToken(uint8_t byte);
std::optional<char> ByteFallbackByte(std::string_view content);

}  // namespace kuiper
