// The state shared by all parts of a rendering: heap, limits and failure. Also the operations on
// values that need it. A function that returns bool returns false after Fail, if the rendering has
// failed.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "kuiper/base/status.h"
#include "kuiper/jinja/ast.h"
#include "kuiper/jinja/template.h"
#include "kuiper/jinja/text.h"
#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

class Runtime {
 public:
  Runtime(std::string_view source, const std::tm& now, const Limits& limits, Heap* heap);

  Heap& heap() { return *heap_; }
  const std::tm& now() const { return now_; }
  const Status& status() const { return status_; }
  const Refusal& refusal() const { return refusal_; }

  bool Fail(const Node& node, const std::string& message);
  // Fails with the template's own error message.
  bool Raise(const std::string& words);
  // Counts work besides expressions and statements, and checks all limits.
  bool Work(const Node& node, size_t elements);
  // Enter and Leave enclose code that may recurse.
  bool Enter(const Node& node);
  void Leave() { --depth_; }

 protected:
  TextBuilder output_;
  TextBuilder* out_;  // receives the printed text

 private:
  std::string_view source_;
  std::tm now_;
  Limits limits_;
  Heap* heap_;
  Status status_;
  Refusal refusal_;
  int64_t steps_left_;
  int depth_ = 0;
};

// "'x' is undefined"
std::string UndefinedMessage(const Value& value);
// Returns the elements of a value that Python can iterate over; null for any other.
List* Items(Runtime& run, const Value& value, const Node& node);
// object.name and object[key]; the result is undefined if there is none.
bool Attribute(Runtime& run, const Value& object, std::string_view name, const Node& node,
               Value* result);
bool Element(Runtime& run, const Value& object, const Value& key, const Node& node, Value* result);
// item in container.
bool Contains(Runtime& run, const Value& container, const Value& item, const Node& node,
              bool* result);

}  // namespace kuiper::jinja
