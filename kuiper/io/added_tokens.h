// Finds added tokens in text as Hugging Face's AddedVocabulary does: leftmost, then longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin = 0, end = 0;  // with the white space the token takes with it
    int32_t id = 0;
  };

  // `pattern` is what to look for: the content, normalised for tokens that ask for it.
  void Add(std::string pattern, const AddedToken& token);
  bool empty() const { return patterns_.empty(); }

  // Appends the tokens that lie inside text[begin, end). White space is taken from the whole text,
  // but never from before `floor`, where an earlier match ended.
  void Find(std::string_view text, size_t begin, size_t end, size_t floor,
            std::vector<Match>* matches) const;

 private:
  struct Pattern {
    std::string text;
    int32_t id;
    bool lstrip, rstrip;
  };
  const Pattern* LongestAt(std::string_view rest) const;

  std::vector<Pattern> patterns_;  // by first byte, then longest first
  std::array<bool, 256> first_bytes_{};
};

}  // namespace kuiper
