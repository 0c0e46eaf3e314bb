#include "kuiper/jinja/runtime.h"

#include "kuiper/base/text.h"
#include "kuiper/jinja/lexer.h"

namespace kuiper::jinja {

Runtime::Runtime(std::string_view source, const std::tm& now, const Limits& limits, Heap* heap)
    : output_(limits.output_bytes),
      out_(&output_),
      source_(source),
      now_(now),
      limits_(limits),
      heap_(heap),
      steps_left_(limits.steps) {}

bool Runtime::Fail(const Node& node, const std::string& message) {
  if (status_.ok()) {
    status_ =
        Status(StatusCode::kInput, "chat template, " + Place(source_, node.at) + ": " + message);
  }
  return false;
}

bool Runtime::Raise(const std::string& words) {
  refusal_ = {true, words};
  status_ = Status(StatusCode::kInput, "the chat template refuses the messages: " + words);
  return false;
}

bool Runtime::Work(const Node& node, size_t elements) {
  steps_left_ -= static_cast<int64_t>(elements);
  if (steps_left_ < 0) {
    return Fail(node, "more than " + std::to_string(limits_.steps) + " steps");
  }
  if (heap_->is_full()) {
    return Fail(node, "more than " + Megabytes(heap_->max_bytes()) + " of memory");
  }
  if (out_->overflowed()) return Fail(node, "the text is too long");
  return true;
}

bool Runtime::Enter(const Node& node) {
  return ++depth_ <= limits_.depth || Fail(node, "nested too deep");
}

}  // namespace kuiper::jinja
