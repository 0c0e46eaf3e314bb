#include "kuiper/io/image/data_url.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "kuiper/base/text.h"
#include "kuiper/base/trim.h"

namespace kuiper {
namespace {

// Table entries for characters that are not base64 digits.
constexpr uint8_t kNoDigit = 0xFF, kBlank = 0xFE, kPadding = 0xFD;

constexpr std::array<uint8_t, 256> MakeDigits() {
  std::array<uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    digits[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  digits['-'] = digits['+'];
  digits['_'] = digits['/'];
  for (const char blank : {' ', '\t', '\n', '\f', '\r'})
    digits[static_cast<uint8_t>(blank)] = kBlank;
  digits['='] = kPadding;
  return digits;
}
constexpr std::array<uint8_t, 256> kDigits = MakeDigits();

// Returns nothing if `text` is not base64. Decodes at most `max_bytes` + 1 bytes.
std::optional<std::string> DecodeBase64(std::string_view text, size_t max_bytes) {
  std::string bytes;
  bytes.reserve(std::min(text.size() / 4 * 3 + 3, max_bytes + 1));
  uint32_t bits = 0;
  int num_bits = 0, num_padding = 0;
  for (size_t at = 0; at < text.size() && bytes.size() <= max_bytes; ++at) {
    const uint8_t digit = kDigits[static_cast<uint8_t>(text[at])];
    if (digit == kBlank) continue;
    if (digit == kPadding && ++num_padding <= 2) continue;
    if (digit > 63 || num_padding > 0) return std::nullopt;
    bits = bits << 6 | digit;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(bits >> num_bits & 0xFF));
  }
  // A single digit is not a byte, and a complete group has no padding.
  if (num_bits == 6 || (num_bits == 0 && num_padding > 0)) return std::nullopt;
  return bytes;
}

bool StartsWithWord(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::ranges::equal(text.substr(0, lower.size()), lower, [](char c, char wanted) {
           return (c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) == wanted;
         });
}

// True if the part before the comma ends with ";base64", apart from blanks.
bool HasBase64Suffix(std::string_view head) {
  const size_t semicolon = head.rfind(';');
  if (semicolon == std::string_view::npos) return false;
  const std::string_view word = Trimmed(head.substr(semicolon + 1));
  constexpr std::string_view kBase64 = "base64";
  return word.size() == kBase64.size() && StartsWithWord(word, kBase64);
}

}  // namespace

bool IsDataUrl(std::string_view url) {
  return StartsWithWord(url, "data:");
}

StatusOr<std::string> DecodeImageUrl(std::string_view url, size_t max_bytes,
                                     const std::string& name) {
  const auto wrong = [&](const std::string& what) {
    return Status(StatusCode::kInput, name + what,
                  "write data:image/png;base64,... with the bytes");
  };
  if (!IsDataUrl(url)) {
    return wrong(": " + Quoted(url.substr(0, 40)) +
                 " is not a data: URL, the only kind that is read");
  }
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) return wrong(": the data: URL has no comma before its data");
  if (!HasBase64Suffix(url.substr(0, comma))) return wrong(": the data: URL is not in base64");
  std::string_view data = url.substr(comma + 1);
  std::string decoded;
  if (data.find('%') != std::string_view::npos) data = decoded = PercentDecoded(data);
  std::optional<std::string> bytes = DecodeBase64(data, max_bytes);
  if (!bytes.has_value()) return wrong(": the data: URL is not valid base64");
  if (bytes->size() > max_bytes) {
    return Status(
        StatusCode::kInput,
        name + ": the data: URL holds more than " + std::to_string(max_bytes >> 20) + " MB",
        "scale the picture down");
  }
  return *std::move(bytes);
}

}  // namespace kuiper
