// Generated ids -> the text a caller sees: reasoning and answer told apart, stop strings searched
// in the answer, and text held back while it may still turn out to be part of a stop string.
// Called by whatever answers a request; it does not know where the ids come from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/engine/request.h"
#include "kuiper/io/thinking.h"
#include "kuiper/io/tokenizer.h"

namespace kuiper {

class TextAssembler {
 public:
  struct Delta {
    std::string text;
    std::string reasoning;
    bool stopped = false;  // a stop string began; what follows it is dropped
  };

  // `tokenizer` may be null (then there is no text) and must outlive the assembler.
  TextAssembler(const Tokenizer* tokenizer, const Request& request);

  Delta Push(int32_t id);
  // The text that was held back. Call once, after the last token.
  Delta Finish();

  bool inside_thinking() const { return splitter_.has_value() && splitter_->inside(); }
  bool has_reasoning() const { return splitter_.has_value() && splitter_->has_block(); }
  // The stop string that began first, of several the first of the request; "" when none did.
  const std::string& found_stop() const { return found_stop_; }
  int reasoning_tokens() const { return splitter_.has_value() ? splitter_->reasoning_tokens() : 0; }

 private:
  Delta Search(ThinkingSplitter::Delta delta, bool at_end);

  std::optional<ThinkingSplitter> splitter_;
  std::vector<std::string> stop_;
  std::string found_stop_;
  std::string held_;
  size_t num_exempt_ = 0;  // bytes of held_: a stop string must end behind them
  int num_exempt_left_;    // tokens that are still exempt
  bool stopped_ = false;
};

}  // namespace kuiper
