// Splits the output of a thinking model: <think>reasoning</think>answer. Newlines next to the tags
// belong to the tags, as in Qwen3's chat template. A tag counts only where the template puts it:
// <think> before any other text, </think> inside the block. Elsewhere it is text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kuiper/io/token_stream.h"
#include "kuiper/io/tokenizer.h"

namespace kuiper {

// The tags around a model's reasoning.
struct ThinkingTags {
  std::string open = "<think>";
  std::string close = "</think>";
};

struct ThinkingText {
  std::optional<std::string> reasoning;  // absent if there was no block
  std::string answer;
  bool closed = true;  // false if the text ends inside the block
};
ThinkingText SplitThinking(std::string_view text);

// Does the same while tokens arrive. Uses the token ids of the tags, or their text if the tokenizer
// has no such tokens.
class ThinkingSplitter {
 public:
  struct Delta {
    std::string reasoning;
    std::string answer;
  };

  // `starts_inside`: the prompt ends with an open <think>. `split` false: everything is answer
  // (models without thinking). `tokenizer` must outlive the splitter.
  explicit ThinkingSplitter(const Tokenizer& tokenizer, bool split = true,
                            bool starts_inside = false, ThinkingTags tags = {});

  Delta Push(int32_t id);
  // Returns the text that was held back. Call once, after the last token.
  Delta Finish();

  bool inside() const { return state_ == State::kReasoning; }
  bool has_block() const { return has_block_; }
  int reasoning_tokens() const { return reasoning_tokens_; }  // tokens between the tags

 private:
  enum class State { kStart, kReasoning, kAnswer };

  void Consume(std::string_view text, Delta* delta);
  void ConsumeStart(std::string_view text, Delta* delta);
  void ConsumeReasoning(std::string_view text, Delta* delta);
  void ConsumeAnswer(std::string_view text, Delta* delta);
  void Open();
  void Close();

  TokenStream stream_;
  ThinkingTags tags_;
  std::optional<int32_t> open_id_, close_id_;
  State state_;
  bool has_block_;
  bool at_block_edge_;  // the newlines that come next belong to the tag
  bool by_id_ = false;  // both tags are tokens
  std::string held_;    // text that may belong to a tag
  int reasoning_tokens_ = 0;
};

}  // namespace kuiper
