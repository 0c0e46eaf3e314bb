#include "kuiper/io/image/data_url.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "kuiper/base/text.h"

namespace kuiper {
namespace {

constexpr uint8_t kNoDigit = 0xFF;

constexpr std::array<uint8_t, 256> MakeDigits() {
  std::array<uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    digits[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  return digits;
}
constexpr std::array<uint8_t, 256> kDigits = MakeDigits();

// Absent when `text` is not strict base64.
std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const uint8_t digit = kDigits[static_cast<uint8_t>(c)];
    if (digit == kNoDigit) return std::nullopt;
    bits = bits << 6 | digit;
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes.push_back(static_cast<char>(bits >> num_bits & 0xFF));
    }
  }
  // Bits that no byte takes: zero, or there are several spellings of the same bytes.
  if ((bits & ((1u << num_bits) - 1)) != 0) return std::nullopt;
  return bytes;
}

bool StartsWithWord(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::ranges::equal(text.substr(0, lower.size()), lower, [](char c, char wanted) {
           return (c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) == wanted;
         });
}

}  // namespace

StatusOr<std::string> DecodeImageUrl(std::string_view url, size_t max_bytes,
                                     const std::string& name) {
  const auto wrong = [&](const std::string& what) {
    return Status(StatusCode::kInput, name + what,
                  "write data:image/png;base64,... with the bytes");
  };
  if (!StartsWithWord(url, "data:")) {
    return wrong(": " + Quoted(url.substr(0, 40)) + " is no data: URL, and no other kind is read");
  }
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) return wrong(": the data: URL has no comma before its data");
  const std::string_view head = url.substr(0, comma), data = url.substr(comma + 1);
  if (!StartsWithWord(head, "data:image/")) {
    return wrong(": the data: URL says " + Quoted(head.substr(5)) + ", not image/...");
  }
  constexpr std::string_view kBase64 = ";base64";
  if (!StartsWithWord(head.substr(head.size() - std::min(head.size(), kBase64.size())), kBase64)) {
    return wrong(": the data: URL is not in base64");
  }
  if (data.size() / 4 > max_bytes / 3) {
    return Status(
        StatusCode::kInput,
        name + ": the data: URL holds more than " + std::to_string(max_bytes >> 20) + " MB",
        "scale the picture down");
  }
  std::optional<std::string> bytes = DecodeBase64(data);
  if (!bytes.has_value()) return wrong(": the data: URL is not valid base64");
  return *std::move(bytes);
}

}  // namespace kuiper
