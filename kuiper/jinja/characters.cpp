#include "kuiper/jinja/characters.h"

#include <utf8proc.h>

#include "kuiper/io/utf8.h"

namespace kuiper::jinja {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

Character FirstCharacter(std::string_view text) {
  const unsigned char lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const Utf8Step step = NextUtf8(text);
  if (step.kind != Utf8Step::Kind::kValid) return {0xFFFD, 1};
  return {step.code_point, static_cast<size_t>(step.num_bytes)};
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += FirstCharacter(text.substr(at)).size;
  return count;
}

size_t ByteOfCharacter(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += FirstCharacter(text.substr(at)).size;
  return at;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

size_t LeadingSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character c = FirstCharacter(text.substr(at));
    if (!IsSpace(c.code)) break;
    at += c.size;
  }
  return at;
}

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
    const Character c = FirstCharacter(text.substr(begin, end - begin));
    if (c.size != end - begin || !IsSpace(c.code)) break;
    end = begin;
  }
  return text.size() - end;
}

bool IsUpper(char32_t c) {
  return c < 0x80 ? c >= 'A' && c <= 'Z' : utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}

bool IsLower(char32_t c) {
  return c < 0x80 ? c >= 'a' && c <= 'z' : utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}

bool IsCased(char32_t c) {
  return IsUpper(c) || IsLower(c) || Category(c) == UTF8PROC_CATEGORY_LT;
}

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  const utf8proc_category_t category = Category(c);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

void AppendCase(char32_t c, Case wanted, std::string* out) {
  constexpr char32_t kSharpS = 0xDF;
  if (c == kSharpS && wanted != Case::kLower) {
    *out += wanted == Case::kUpper ? "SS" : "Ss";
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  const utf8proc_int32_t other = wanted == Case::kUpper   ? utf8proc_toupper(code)
                                 : wanted == Case::kLower ? utf8proc_tolower(code)
                                                          : utf8proc_totitle(code);
  AppendUtf8(static_cast<char32_t>(other), out);
}

}  // namespace kuiper::jinja
