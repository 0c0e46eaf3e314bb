// Cuts text into pre-tokens with the regular expression of a tokenizer.json. The expression is
// written for Oniguruma (the engine of Hugging Face's tokenizers) and runs on PCRE2. Constructs
// that the two interpret differently are translated or refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

struct SplitPart {
  std::string_view text;
  bool is_match = false;
};

// Returns the PCRE2 pattern with the meaning that `pattern` has in Oniguruma for UTF-8.
StatusOr<std::string> TranslateRegex(std::string_view pattern);

class SplitRegex {
 public:
  static StatusOr<SplitRegex> Compile(std::string_view pattern);
  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;
  ~SplitRegex();

  // Returns the library and its Unicode version, for messages.
  static std::string Engine();

  // Appends the parts of `text` (valid UTF-8) to `parts`: every match and every stretch between
  // matches, in order. Together they are the whole text. A match may be empty.
  void Cut(std::string_view text, std::vector<SplitPart>* parts) const;

 private:
  struct Code;
  explicit SplitRegex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace kuiper
