// Cuts text into pre-tokens as the patterns of GPT-2, Qwen and Llama 3 do, without a
// regular-expression engine. SplitRegex handles all other patterns.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace kuiper {

class WordSplit {
 public:
  // Returns nothing if `pattern` (of a tokenizer.json) is not a known one.
  static std::optional<WordSplit> ForPattern(std::string_view pattern);

  // Appends the parts of `text` (valid UTF-8). Every part is a match; together they are the text.
  void Split(std::string_view text, std::vector<std::string_view>* parts) const;

 private:
  enum class Style { kGpt2, kLlama3 };
  WordSplit(Style style, bool marks_in_words, int max_digits)
      : style_(style), marks_in_words_(marks_in_words), max_digits_(max_digits) {}
  Style style_;
  bool marks_in_words_;
  int max_digits_;  // kLlama3: most digits in one part
};

}  // namespace kuiper
