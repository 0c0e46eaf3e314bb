#include "kuiper/engine/text_assembler.h"

#include <algorithm>
#include <utility>

namespace kuiper {
namespace {

// Length of the longest end of `text` that is a beginning of `stop`, and not all of it.
size_t PartialMatch(const std::string& text, const std::string& stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  }
  return 0;
}

}  // namespace

TextAssembler::TextAssembler(const Tokenizer* tokenizer, const Request& request)
    : stop_(request.stop) {
  std::erase(stop_, std::string());
  if (tokenizer == nullptr) return;
  splitter_.emplace(*tokenizer, request.split_thinking, request.starts_thinking,
                    request.thinking_tags);
}

TextAssembler::Delta TextAssembler::Push(int32_t id) {
  if (!splitter_.has_value() || stopped_) return {};
  return Search(splitter_->Push(id), false);
}

TextAssembler::Delta TextAssembler::Finish() {
  if (!splitter_.has_value() || stopped_) return {};
  return Search(splitter_->Finish(), true);
}

TextAssembler::Delta TextAssembler::Search(ThinkingSplitter::Delta delta, bool at_end) {
  Delta out;
  out.reasoning = std::move(delta.reasoning);
  held_ += delta.answer;
  size_t begin = std::string::npos;  // of the first stop string
  size_t keep = 0;
  for (const std::string& stop : stop_) {
    begin = std::min(begin, held_.find(stop));
    if (!at_end) keep = std::max(keep, PartialMatch(held_, stop));
  }
  if (begin != std::string::npos) {
    stopped_ = out.stopped = true;
    out.text = held_.substr(0, begin);
    held_.clear();
    return out;
  }
  out.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

}  // namespace kuiper
