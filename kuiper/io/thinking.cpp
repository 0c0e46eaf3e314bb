#include "kuiper/io/thinking.h"

#include <algorithm>
#include <utility>

namespace kuiper {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

size_t LeadingNewlines(std::string_view text) {
  return std::min(text.find_first_not_of('\n'), text.size());
}

// Returns the length of the longest suffix of `text` that is a proper prefix of `tag`.
size_t PossibleTag(std::string_view text, std::string_view tag) {
  size_t length = std::min(text.size(), tag.size() - 1);
  while (!text.ends_with(tag.substr(0, length))) --length;
  return length;
}

}  // namespace

ThinkingSplitter::ThinkingSplitter(const Tokenizer& tokenizer, bool split, bool starts_inside,
                                   ThinkingTags tags)
    : stream_(tokenizer),
      tags_(std::move(tags)),
      open_id_(tokenizer.TokenId(tags_.open)),
      close_id_(tokenizer.TokenId(tags_.close)),
      state_(!split          ? State::kAnswer
             : starts_inside ? State::kReasoning
                             : State::kStart),
      has_block_(split && starts_inside),
      at_block_edge_(has_block_) {
  by_id_ = open_id_.has_value() && close_id_.has_value();
}

ThinkingSplitter::Delta ThinkingSplitter::Push(int32_t id) {
  Delta delta;
  const bool at_start =
      state_ == State::kStart && held_.find_first_not_of(" \t\r\n") == std::string::npos;
  if (by_id_ && id == *open_id_ && at_start) {
    Open();
  } else if (by_id_ && id == *close_id_ && state_ == State::kReasoning) {
    Consume(stream_.Finish(), &delta);
    Close();
  } else {
    if (state_ == State::kReasoning) ++reasoning_tokens_;
    Consume(stream_.Push(id), &delta);
  }
  return delta;
}

ThinkingSplitter::Delta ThinkingSplitter::Finish() {
  Delta delta;
  Consume(stream_.Finish(), &delta);
  if (state_ == State::kReasoning) {
    delta.reasoning += held_.substr(0, held_.find_last_not_of('\n') + 1);
  } else {
    delta.answer += held_;
  }
  held_.clear();
  return delta;
}

void ThinkingSplitter::Open() {
  state_ = State::kReasoning;
  has_block_ = at_block_edge_ = true;
  held_.clear();
}

void ThinkingSplitter::Close() {
  state_ = State::kAnswer;
  at_block_edge_ = true;
  held_.clear();
}

void ThinkingSplitter::Consume(std::string_view text, Delta* delta) {
  if (state_ == State::kStart) {
    ConsumeStart(text, delta);
  } else if (state_ == State::kReasoning) {
    ConsumeReasoning(text, delta);
  } else {
    ConsumeAnswer(text, delta);
  }
}

void ThinkingSplitter::ConsumeStart(std::string_view text, Delta* delta) {
  held_ += text;
  const size_t begin = held_.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return;
  const std::string rest = held_.substr(begin);
  if (!by_id_) {
    if (rest.starts_with(tags_.open)) {
      Open();
      ConsumeReasoning(std::string_view(rest).substr(tags_.open.size()), delta);
      return;
    }
    if (std::string_view(tags_.open).starts_with(rest)) return;
  }
  state_ = State::kAnswer;
  delta->answer += held_;
  held_.clear();
}

void ThinkingSplitter::ConsumeReasoning(std::string_view text, Delta* delta) {
  held_ += text;
  if (at_block_edge_) {
    held_.erase(0, LeadingNewlines(held_));
    if (held_.empty()) return;
    at_block_edge_ = false;
  }
  const size_t close = by_id_ ? std::string::npos : held_.find(tags_.close);
  // Newlines before a closing tag belong to it, so they wait, like a possible start of the tag.
  const std::string_view ready =
      std::string_view(held_).substr(0, close != std::string::npos ? close
                                        : by_id_                   ? held_.size()
                                                 : held_.size() - PossibleTag(held_, tags_.close));
  const size_t keep = ready.find_last_not_of('\n') + 1;
  delta->reasoning += ready.substr(0, keep);
  if (close == std::string::npos) {
    held_.erase(0, keep);
    return;
  }
  const std::string rest = held_.substr(close + tags_.close.size());
  Close();
  ConsumeAnswer(rest, delta);
}

void ThinkingSplitter::ConsumeAnswer(std::string_view text, Delta* delta) {
  if (at_block_edge_) {
    text.remove_prefix(LeadingNewlines(text));
    if (text.empty()) return;
    at_block_edge_ = false;
  }
  delta->answer += text;
}

ThinkingText SplitThinking(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  ThinkingText split;
  if (!text.substr(begin).starts_with(kOpen)) {
    split.answer = text;
    return split;
  }
  std::string_view rest = text.substr(begin + kOpen.size());
  rest.remove_prefix(LeadingNewlines(rest));
  const size_t close = rest.find(kClose);
  split.closed = close != std::string_view::npos;
  const std::string_view reasoning = rest.substr(0, close);
  split.reasoning = reasoning.substr(0, reasoning.find_last_not_of('\n') + 1);
  if (split.closed) {
    rest.remove_prefix(close + kClose.size());
    split.answer = rest.substr(LeadingNewlines(rest));
  }
  return split;
}

}  // namespace kuiper
