#include "kuiper/io/normalizer.h"

#include <algorithm>
#include <span>
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

namespace {

// Appends the writer of `size` bytes that replace those written by `before`.
void AppendWriter(std::span<const Writer> before, size_t size, std::vector<Writer>* out) {
  const bool has_user = std::find(before.begin(), before.end(), Writer::kUser) != before.end();
  out->insert(out->end(), size, has_user ? Writer::kUser : before.front());
}

std::vector<Writer> NfcWriters(std::string_view text, std::span<const Writer> writers) {
  std::vector<Writer> out;
  while (!text.empty()) {
    const std::string_view part = NfcPart(text);
    const std::span<const Writer> its = writers.first(part.size());
    const std::string changed = Nfc(part);
    if (changed == part) {
      out.insert(out.end(), its.begin(), its.end());
    } else {
      AppendWriter(its, changed.size(), &out);
    }
    text.remove_prefix(part.size());
    writers = writers.subspan(part.size());
  }
  return out;
}

std::vector<Writer> ReplacedWriters(std::string_view text, const NormalizerStep& step,
                                    std::span<const Writer> writers) {
  std::vector<Writer> out;
  size_t done = 0;
  for (size_t at = text.find(step.from); at != std::string_view::npos;
       at = text.find(step.from, done)) {
    out.insert(out.end(), writers.begin() + done, writers.begin() + at);
    AppendWriter(writers.subspan(at, step.from.size()), step.to.size(), &out);
    done = at + step.from.size();
  }
  out.insert(out.end(), writers.begin() + done, writers.end());
  return out;
}

}  // namespace

std::string_view Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string* storage, std::vector<Writer>* writers) {
  for (const NormalizerStep& step : steps) {
    std::string next;
    switch (step.kind) {
      case NormalizerStep::Kind::kNfc:
        if (IsSurelyNfc(text)) continue;
        next = Nfc(text);
        if (writers != nullptr) *writers = NfcWriters(text, *writers);
        break;
      case NormalizerStep::Kind::kPrepend:
        if (text.empty()) continue;
        next = step.to;
        next += text;
        if (writers != nullptr) {
          writers->insert(writers->begin(), step.to.size(), Writer::kNormalizer);
        }
        break;
      case NormalizerStep::Kind::kReplace:
        if (text.find(step.from) == std::string_view::npos) continue;
        next = ReplaceAll(text, step.from, step.to);
        if (writers != nullptr) *writers = ReplacedWriters(text, step, *writers);
        break;
    }
    *storage = std::move(next);
    text = *storage;
  }
  return text;
}

}  // namespace kuiper
