// The text of several TextPieces in one string of valid UTF-8, and where in it added tokens may be
// recognised. Shared by the tokenizers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/normalizer.h"
#include "kuiper/io/tokenizer.h"

namespace kuiper {

class JoinedText {
 public:
  struct Range {
    size_t begin, end;
  };

  // A single valid piece is viewed, not copied; the pieces must outlive this object.
  explicit JoinedText(std::span<const TextPiece> pieces);
  JoinedText(const JoinedText&) = delete;
  JoinedText& operator=(const JoinedText&) = delete;

  std::string_view text() const { return text_; }
  // Ascending; neighbouring pieces with parse_added form one range.
  const std::vector<Range>& parsed() const { return parsed_; }
  // The writer of each byte of [begin, end); empty if one of the ranges contains all of it.
  std::vector<Writer> WritersOf(size_t begin, size_t end) const;

 private:
  std::string storage_;
  std::string_view text_;
  std::vector<Range> parsed_;
};

}  // namespace kuiper
