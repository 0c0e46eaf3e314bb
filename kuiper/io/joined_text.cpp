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

bool JoinedText::IsParsed(size_t begin, size_t end) const {
  return std::any_of(parsed_.begin(), parsed_.end(),
                     [&](Range r) { return r.begin <= begin && end <= r.end; });
}

}  // namespace kuiper
