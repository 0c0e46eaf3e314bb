// Token ids -> text while they arrive. Push returns the text that became complete, so a caller may
// print it at once: never half a UTF-8 character, and what is not UTF-8 becomes U+FFFD.
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
    bool skip_special = true;   // leave control tokens out
    bool at_text_start = true;  // drop the leading space a SentencePiece decoder drops
  };

  // `tokenizer` must outlive the stream.
  explicit TokenStream(const Tokenizer& tokenizer) : TokenStream(tokenizer, Options()) {}
  TokenStream(const Tokenizer& tokenizer, Options options);

  // Ids without a token add nothing.
  std::string Push(int32_t id);
  // Whether Push(id) would first give the character that is held back up, as U+FFFD, because the
  // token does not continue it: the token's own text begins behind that.
  bool BreaksOffCharacter(int32_t id) const;
  // The bytes still held back, as U+FFFD. The stream can be used again for the following text.
  std::string Finish();

 private:
  std::string_view BytesOf(int32_t id) const;  // what Push adds
  std::string TakeComplete();

  const Tokenizer* tokenizer_;
  Options options_;
  bool strip_space_;
  std::string pending_;  // the beginning of a character: at most 3 bytes between calls
};

// The whole text of `ids` at once.
std::string DecodeTokens(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                         TokenStream::Options options = {});

}  // namespace kuiper
