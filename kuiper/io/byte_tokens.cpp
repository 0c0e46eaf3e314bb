#include "kuiper/io/byte_tokens.h"

#include <array>
#include <charconv>

#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

struct ByteAlphabet {
  std::array<char32_t, 256> char_of;
  std::array<int16_t, 512> byte_of;

  ByteAlphabet() {
    byte_of.fill(-1);
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      char_of[b] = printable ? static_cast<char32_t>(b) : next++;
      byte_of[char_of[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

char32_t ByteLevelChar(uint8_t byte) {
  return Alphabet().char_of[byte];
}

std::string ByteLevelBytes(std::string_view content) {
  const ByteAlphabet& alphabet = Alphabet();
  std::string bytes(content.size(), '\0');
  size_t count = 0;
  for (size_t at = 0; at < content.size(); ++count) {
    char32_t code_point = static_cast<uint8_t>(content[at]);
    size_t num_bytes = 1;
    if (code_point >= 0x80) {
      const Utf8Step step = NextUtf8(content.substr(at));
      code_point = step.code_point;
      num_bytes = step.num_bytes;
    }
    const int byte = code_point < 512 ? alphabet.byte_of[code_point] : -1;
    if (byte < 0) return std::string(content);
    bytes[count] = static_cast<char>(byte);
    at += num_bytes;
  }
  bytes.resize(count);
  return bytes;
}

std::string ByteFallbackToken(uint8_t byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">";
}

std::optional<char> ByteFallbackByte(std::string_view content) {
  if (content.size() != 6 || !content.starts_with("<0x") || content[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const char* end = content.data() + 5;
  const auto parsed = std::from_chars(content.data() + 3, end, byte, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace kuiper
