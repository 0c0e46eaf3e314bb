// Converts token ids into text while they arrive. Push returns the text that became complete, which
// can be printed at once: it never ends inside a UTF-8 character, and invalid UTF-8 becomes U+FFFD.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kuiper/io/tokenizer.h"

namespace kuiper {

class TokenStream {
 public:
  struct Options {
    bool skip_special = true;   // leave out control tokens
    bool at_text_start = true;  // drop the leading space that a SentencePiece decoder drops
  };

  // `tokenizer` must outlive the stream.
  explicit TokenStream(const Tokenizer& tokenizer) : TokenStream(tokenizer, Options()) {}
  TokenStream(const Tokenizer& tokenizer, Options options);

  // Ids without a token add nothing.
  std::string Push(int32_t id);
  // True if Push(id) would return the incomplete pending character as U+FFFD first, because the
  // token does not continue it. The token's own text follows that U+FFFD.
  bool BreaksOffCharacter(int32_t id) const;
  // Returns the pending bytes as U+FFFD. The stream can be used again for the text that follows.
  std::string Finish();

 private:
  std::string_view BytesOf(int32_t id) const;  // the bytes that Push adds
  std::string TakeComplete();

  const Tokenizer* tokenizer_;
  Options options_;
  bool strip_space_;
  std::string pending_;  // the start of a character: at most 3 bytes between calls
};

// Returns the whole text of `ids` at once.
std::string DecodeTokens(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                         TokenStream::Options options = {});

}  // namespace kuiper
