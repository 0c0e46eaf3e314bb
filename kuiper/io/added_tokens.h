// Finds added tokens in text as Hugging Face's AddedVocabulary does: leftmost, then longest.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/normalizer.h"
#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin = 0, end = 0;  // including white space that the token strips
    int32_t id = 0;
  };

  // `pattern` is the text to look for: the content, normalised for tokens that ask for it.
  // `writers` has an entry per byte of `pattern`; if empty, the template wrote all bytes.
  void Add(std::string pattern, const AddedToken& token, std::vector<Writer> writers = {});
  bool empty() const { return patterns_.empty(); }

  // Appends the tokens that lie inside text[begin, end). They may strip white space of the whole
  // text, but none before `floor`, where an earlier match ended.
  void Find(std::string_view text, size_t begin, size_t end, size_t floor,
            std::vector<Match>* matches) const;
  // Appends the tokens in the parts of the text that users did not write; `writers` has an entry
  // per byte. Bytes of `pattern` that a normaliser added to a token's content may be the user's:
  // they alone make no token.
  void FindOutsideUserText(std::string_view text, std::span<const Writer> writers,
                           std::vector<Match>* matches) const;

 private:
  struct Pattern {
    std::string text;
    std::vector<Writer> writers;
    int32_t id;
    bool lstrip, rstrip, single_word;
  };
  // A range of a text to search for tokens.
  struct Search {
    std::string_view text;
    size_t begin, end;
    size_t floor;
    std::span<const Writer> writers;  // empty: users wrote none of the range
  };
  void Find(const Search& search, std::vector<Match>* matches) const;
  const Pattern* LongestAt(const Search& search, size_t pos) const;
  static bool IsWrittenByUser(const Search& search, size_t pos, const Pattern& pattern);

  std::vector<Pattern> patterns_;  // by first byte, then longest first
  std::array<bool, 256> first_bytes_{};
};

}  // namespace kuiper
