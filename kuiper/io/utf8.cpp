#include "kuiper/io/utf8.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstring>

namespace kuiper {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

uint8_t ByteAt(std::string_view text, size_t i) {
  return static_cast<uint8_t>(text[i]);
}

// Returns the number of leading ASCII bytes; reads eight at a time.
size_t AsciiPrefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080ull) != 0) break;
  }
  while (i < text.size() && ByteAt(text, i) < 0x80) ++i;
  return i;
}

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  using Kind = Utf8Step::Kind;
  const uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) return {Kind::kValid, 1, lead};
  // Well-formed sequences (Unicode, table 3-7): only the second byte's range depends on the lead.
  int length = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Kind::kInvalid, 1, kReplacement};
  }
  char32_t code_point = lead & (0x7Fu >> length);
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Kind::kIncomplete, i, kReplacement};
    const uint8_t byte = ByteAt(text, i);
    if (byte < low || byte > high) return {Kind::kInvalid, i, kReplacement};
    code_point = code_point << 6 | (byte & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::kValid, length, code_point};
}

bool IsValidUtf8(std::string_view text) {
  while (true) {
    text.remove_prefix(AsciiPrefix(text));
    if (text.empty()) return true;
    const Utf8Step step = NextUtf8(text);
    if (step.kind != Utf8Step::Kind::kValid) return false;
    text.remove_prefix(step.num_bytes);
  }
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (step.kind == Utf8Step::Kind::kValid) {
      out.append(text.substr(0, step.num_bytes));
    } else {
      AppendUtf8(kReplacement, &out);
    }
    text.remove_prefix(step.num_bytes);
  }
  return out;
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (c >> shift & 0x3F)));
  };
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

int ColumnsOf(char32_t code_point) {
  return utf8proc_charwidth(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace kuiper
