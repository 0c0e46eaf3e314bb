// Joins the text of several TextPieces into one string of valid UTF-8, with the ranges in which
// added tokens may be recognised. Shared by the tokenizers.
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
  // In ascending order; adjacent pieces with parse_added form one range.
  const std::vector<Range>& parsed() const { return parsed_; }
  // Returns the writer of each byte of [begin, end); empty if one range of parsed() contains them
  // all.
  std::vector<Writer> WritersOf(size_t begin, size_t end) const;

 private:
  std::string storage_;
  std::string_view text_;
  std::vector<Range> parsed_;
};

}  // namespace kuiper
