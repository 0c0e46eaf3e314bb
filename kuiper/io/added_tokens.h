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
    size_t begin = 0, end = 0;  // with the white space the token takes with it
    int32_t id = 0;
  };

  // `pattern` is what to look for: the content, normalised for tokens that ask for it. `writers`
  // has an entry per byte of it; empty: all are the template's.
  void Add(std::string pattern, const AddedToken& token, std::vector<Writer> writers = {});
  bool empty() const { return patterns_.empty(); }

  // Appends the tokens that lie inside text[begin, end). White space is taken from the whole text,
  // but never from before `floor`, where an earlier match ended.
  void Find(std::string_view text, size_t begin, size_t end, size_t floor,
            std::vector<Match>* matches) const;
  // Appends the tokens of the text that users did not write; `writers` has an entry per byte.
  // What a normaliser adds to the content of a token may be theirs: it makes no token of a text.
  void FindUnlessTyped(std::string_view text, std::span<const Writer> writers,
                       std::vector<Match>* matches) const;

 private:
  struct Pattern {
    std::string text;
    std::vector<Writer> writers;
    int32_t id;
    bool lstrip, rstrip, single_word;
  };
  // A range of a text in which tokens are looked for.
  struct Search {
    std::string_view text;
    size_t begin, end;
    size_t floor;
    std::span<const Writer> writers;  // empty: users wrote nothing of the range
  };
  void Find(const Search& search, std::vector<Match>* matches) const;
  const Pattern* LongestAt(const Search& search, size_t pos) const;
  static bool IsTyped(const Search& search, size_t pos, const Pattern& pattern);

  std::vector<Pattern> patterns_;  // by first byte, then longest first
  std::array<bool, 256> first_bytes_{};
};

}  // namespace kuiper
