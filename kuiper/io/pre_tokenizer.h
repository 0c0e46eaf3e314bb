// The pre-tokenizer of a tokenizer.json: cuts normalised text into words that the model encodes one
// by one. Called by bpe_tokenizer.cpp.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/split_regex.h"
#include "kuiper/io/tokenizer_spec.h"
#include "kuiper/io/word_split.h"

namespace kuiper {

// What precedes a text: nothing, an added token, or other text that it continues.
enum class TextStart { kWhole, kAfterToken, kInside };

class PreTokenizer {
 public:
  // The words of one text, and storage for the texts that had to be rewritten.
  struct Words {
    std::vector<std::string_view> words;
    std::deque<std::string> storage;
  };

  static StatusOr<PreTokenizer> Create(const std::vector<PreTokenizerStep>& steps,
                                       const std::string& name);

  // `text` is valid UTF-8 and must outlive the result.
  Words Split(std::string_view text, TextStart start) const;

 private:
  struct ByDigits {};
  struct Step {
    PreTokenizerStep spec;
    std::variant<ByDigits, WordSplit, SplitRegex> cut;  // unused by kPrefix
  };

  static void Cut(const Step& step, std::string_view text, std::vector<std::string_view>* words);
  static void CutSpelling(const Step& step, std::string_view bytes,
                          std::vector<std::string_view>* words);

  std::vector<Step> steps_;
};

}  // namespace kuiper
