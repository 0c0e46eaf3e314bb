// Cuts text into pre-tokens as the patterns of Qwen and Llama 3 do, without a regular-expression
// engine. Other patterns are SplitRegex's.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace kuiper {

class WordSplit {
 public:
  // Nothing if `pattern` (of a tokenizer.json) is not one of those that are known.
  static std::optional<WordSplit> ForPattern(std::string_view pattern);

  // As SplitRegex::Split.
  void Split(std::string_view text, std::vector<std::string_view>* parts) const;

 private:
  WordSplit(bool marks_in_words, int max_digits)
      : marks_in_words_(marks_in_words), max_digits_(max_digits) {}
  bool marks_in_words_;
  int max_digits_;  // in one part
};

}  // namespace kuiper
