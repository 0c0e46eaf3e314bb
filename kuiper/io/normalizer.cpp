#include "kuiper/io/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

// Characters that NFC leaves alone whatever stands next to them and that join with none of each
// other: everything below the combining marks, and the bulk of CJK text. Not all such characters;
// only a cheap test that decides most text.
bool IsInert(char32_t c) {
  return c < 0x300 || (c >= 0x2010 && c <= 0x2027) || (c >= 0x3000 && c <= 0x3098) ||
         (c >= 0x309B && c <= 0x30FF) || (c >= 0x4E00 && c <= 0x9FFF) ||
         (c >= 0xFF00 && c <= 0xFFEF);
}

bool IsInertText(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (!IsInert(step.code_point)) return false;
    text.remove_prefix(step.num_bytes);
  }
  return true;
}

std::string Nfc(std::string_view text) {
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  KU_CHECK(size >= 0, utf8proc_errmsg(size));
  std::string out(reinterpret_cast<const char*>(composed), size);
  std::free(composed);
  return out;
}

}  // namespace

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string_view Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string* storage) {
  for (const NormalizerStep& step : steps) {
    std::string next;
    switch (step.kind) {
      case NormalizerStep::Kind::kNfc:
        if (IsInertText(text)) continue;
        next = Nfc(text);
        break;
      case NormalizerStep::Kind::kPrepend:
        if (text.empty()) continue;
        next = step.to;
        next += text;
        break;
      case NormalizerStep::Kind::kReplace:
        if (text.find(step.from) == std::string_view::npos) continue;
        next = ReplaceAll(text, step.from, step.to);
        break;
    }
    *storage = std::move(next);
    text = *storage;
  }
  return text;
}

}  // namespace kuiper
