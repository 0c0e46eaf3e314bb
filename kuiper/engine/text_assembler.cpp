#include "kuiper/engine/text_assembler.h"

#include <algorithm>
#include <utility>

namespace kuiper {
namespace {

// Length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t PartialMatch(const std::string& text, const std::string& stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  }
  return 0;
}

}  // namespace

TextAssembler::TextAssembler(const Tokenizer* tokenizer, const Request& request)
    : stop_(request.stop), num_exempt_left_(request.min_new_tokens) {
  std::erase(stop_, std::string());
  if (tokenizer == nullptr) return;
  splitter_.emplace(*tokenizer, request.split_thinking, request.starts_thinking,
                    request.thinking_tags);
}

TextAssembler::Delta TextAssembler::Push(int32_t id) {
  if (!splitter_.has_value() || stopped_) return {};
  ThinkingSplitter::Delta delta = splitter_->Push(id);
  if (num_exempt_left_ > 0) {
    --num_exempt_left_;
    num_exempt_ = held_.size() + delta.answer.size();
  }
  return Search(std::move(delta), false);
}

TextAssembler::Delta TextAssembler::Finish() {
  if (!splitter_.has_value() || stopped_) return {};
  return Search(splitter_->Finish(), true);
}

TextAssembler::Delta TextAssembler::Search(ThinkingSplitter::Delta delta, bool at_end) {
  Delta out;
  out.reasoning = std::move(delta.reasoning);
  held_ += delta.answer;
  size_t begin = std::string::npos;  // where the first stop string begins
  size_t keep = 0;
  for (const std::string& stop : stop_) {
    const size_t from = num_exempt_ < stop.size() ? 0 : num_exempt_ - stop.size() + 1;
    if (const size_t found = held_.find(stop, from); found < begin) {
      begin = found;
      found_stop_ = stop;
    }
    if (!at_end) keep = std::max(keep, PartialMatch(held_, stop));
  }
  if (begin != std::string::npos) {
    stopped_ = out.stopped = true;
    out.text = held_.substr(0, begin);
    held_.clear();
    return out;
  }
  const size_t told = held_.size() - keep;
  out.text = held_.substr(0, told);
  held_.erase(0, told);
  num_exempt_ -= std::min(num_exempt_, told);
  return out;
}

}  // namespace kuiper
