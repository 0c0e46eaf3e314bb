#include "kuiper/io/joined_text.h"

#include <algorithm>

#include "kuiper/io/utf8.h"

namespace kuiper {

JoinedText::JoinedText(std::span<const TextPiece> pieces) {
  if (pieces.size() == 1 && IsValidUtf8(pieces[0].text)) {
    text_ = pieces[0].text;
    if (pieces[0].parse_added) parsed_.push_back({0, text_.size()});
    return;
  }
  for (const TextPiece& piece : pieces) {
    const size_t begin = storage_.size();
    if (IsValidUtf8(piece.text)) {
      storage_ += piece.text;
    } else {
      storage_ += ReplaceInvalidUtf8(piece.text);
    }
    if (!piece.parse_added) continue;
    if (!parsed_.empty() && parsed_.back().end == begin) {
      parsed_.back().end = storage_.size();
    } else {
      parsed_.push_back({begin, storage_.size()});
    }
  }
  text_ = storage_;
}

std::vector<Writer> JoinedText::WritersOf(size_t begin, size_t end) const {
  std::vector<Writer> writers(end - begin, Writer::kUser);
  for (const Range& range : parsed_) {
    const size_t from = std::max(range.begin, begin), to = std::min(range.end, end);
    if (from >= to) continue;
    if (from == begin && to == end) return {};
    std::fill(writers.begin() + (from - begin), writers.begin() + (to - begin), Writer::kTemplate);
  }
  return writers;
}

}  // namespace kuiper
