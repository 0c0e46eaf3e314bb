// Comparisons, arithmetic and slices of values.
#pragma once

#include <cstdint>
#include <optional>

#include "kuiper/jinja/ast.h"
#include "kuiper/jinja/runtime.h"

namespace kuiper::jinja {

bool CompareValues(Runtime& run, const Node& node, Operator op, const Value& a, const Value& b,
                   bool* result);
bool Calculate(Runtime& run, const Node& node, Operator op, const Value& a, const Value& b,
               Value* result);

// object[begin:end:step]; absent parts have Python's defaults.
struct Slice {
  std::optional<int64_t> begin, end, step;
};
bool TakeSlice(Runtime& run, const Node& node, const Value& object, const Slice& slice,
               Value* result);

}  // namespace kuiper::jinja
