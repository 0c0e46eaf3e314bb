#include "kuiper/io/normalizer.h"

#include <utility>

#include "kuiper/io/nfc.h"

namespace kuiper {

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
        if (IsSurelyNfc(text)) continue;
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
