#include "kuiper/jinja/text.h"

#include <algorithm>

namespace kuiper::jinja {

Origin Text::OriginAt(size_t at) const {
  for (const Run& run : runs()) {
    if (at < run.length) return run.origin;
    at -= run.length;
  }
  return runs().back().origin;
}

void TextBuilder::Append(std::string_view bytes, Origin origin) {
  if (bytes.empty() || overflowed_) return;
  if (bytes.size() > max_bytes_ - bytes_.size()) {
    overflowed_ = true;
    return;
  }
  bytes_ += bytes;
  if (runs_.empty() || runs_.back().origin != origin) runs_.push_back({0, origin});
  runs_.back().length += bytes.size();
}

void TextBuilder::AppendPart(const Text& text, size_t begin, size_t size) {
  const size_t end = begin + size;
  size_t at = 0;
  for (const Run& run : text.runs()) {
    if (at >= end) return;
    const size_t first = std::max(begin, at), last = std::min(end, at + run.length);
    if (first < last) Append(text.bytes().substr(first, last - first), run.origin);
    at += run.length;
  }
}

}  // namespace kuiper::jinja
