// Generated ids -> the text that a caller gets. Separates reasoning from answer and finds stop
// strings in the answer. Holds text back while it may be part of a stop string. Independent of the
// source of the ids.
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
    bool stopped = false;  // a stop string began; the text after that is dropped
  };

  // `tokenizer` may be null (then there is no text) and must outlive the assembler.
  TextAssembler(const Tokenizer* tokenizer, const Request& request);

  Delta Push(int32_t id);
  // Returns the text that was held back. Call once, after the last token.
  Delta Finish();

  bool inside_thinking() const { return splitter_.has_value() && splitter_->inside(); }
  bool has_reasoning() const { return splitter_.has_value() && splitter_->has_block(); }
  // The stop string that begins first; if several do, the first in the request; "" if none was
  // found.
  const std::string& found_stop() const { return found_stop_; }
  int reasoning_tokens() const { return splitter_.has_value() ? splitter_->reasoning_tokens() : 0; }

 private:
  Delta Search(ThinkingSplitter::Delta delta, bool at_end);

  std::optional<ThinkingSplitter> splitter_;
  std::vector<std::string> stop_;
  std::string found_stop_;
  std::string held_;
  size_t num_exempt_ = 0;  // leading bytes of held_; a stop string must end after them
  int num_exempt_left_;    // number of further tokens that are exempt
  bool stopped_ = false;
};

}  // namespace kuiper
