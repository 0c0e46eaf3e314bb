#include "kuiper/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kuiper/jinja/characters.h"
#include "kuiper/jinja/markup.h"
#include "kuiper/jinja/string_format.h"

namespace kuiper::jinja {
namespace {

constexpr std::string_view kSigns[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

std::string Mismatch(Operator op, const Value& a, const Value& b) {
  return std::string("unsupported operand types for ")
      .append(kSigns[static_cast<size_t>(op)])
      .append(": " + QuotedType(a) + " and " + QuotedType(b));
}

bool Power(int64_t base, int64_t exponent, int64_t* result) {
  *result = 1;
  // With exponents above 64, only the bases -1, 0 and 1 do not overflow.
  if (base == 0 || base == 1) {
    *result = exponent == 0 ? 1 : base;
    return true;
  }
  if (base == -1) {
    *result = exponent % 2 == 0 ? 1 : -1;
    return true;
  }
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(*result, base, result)) return false;
  }
  return true;
}

bool AddLists(Runtime& run, const Node& node, const Value& a, const Value& b, Value* result) {
  if (!a.IsSequence() || a.kind != b.kind) return run.Fail(node, Mismatch(Operator::kAdd, a, b));
  List* list = run.heap().NewList();
  for (const Value* part : {&a, &b}) {
    for (const Value& item : part->list->items) run.heap().Push(list, item);
  }
  *result = Value::OfList(list, a.kind);
  return run.Work(node, list->items.size());
}

bool Repeat(Runtime& run, const Node& node, const Value& a, const Value& b, Value* result) {
  const size_t times = static_cast<size_t>(std::max<int64_t>(b.integer, 0));
  if (a.Is(Kind::kString)) {
    TextBuilder builder = run.heap().Builder();
    for (size_t i = 0; i < times && a.text->size() > 0 && !builder.overflowed(); ++i) {
      builder.Append(*a.text);
    }
    *result = Value::String(run.heap().Copy(builder));
    result->is_markup = a.is_markup;
    return true;
  }
  if (!a.IsSequence()) return run.Fail(node, Mismatch(Operator::kMultiply, a, b));
  List* list = run.heap().NewList();
  for (size_t i = 0; i < times && !a.list->items.empty() && !run.heap().is_full(); ++i) {
    for (const Value& item : a.list->items) run.heap().Push(list, item);
  }
  *result = Value::OfList(list, a.kind);
  return run.Work(node, list->items.size());
}

bool IntegerArithmetic(Runtime& run, const Node& node, Operator op, const Value& a, const Value& b,
                       Value* result) {
  const int64_t x = a.integer, y = b.integer;
  int64_t value = 0;
  bool overflows = false;
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(x, y, &value);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(x, y, &value);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(x, y, &value);
      break;
    case Operator::kPower:
      overflows = !Power(x, y, &value);
      break;
    default: {
      if (y == 0) return run.Fail(node, "division by zero");
      overflows = x == INT64_MIN && y == -1;
      if (overflows) break;
      // Python rounds down, C++ towards zero.
      const int64_t rest = x % y;
      const bool down = rest != 0 && (rest < 0) != (y < 0);
      value = op == Operator::kModulo ? rest + (down ? y : 0) : x / y - (down ? 1 : 0);
    }
  }
  if (overflows) return run.Fail(node, "the integer does not fit into 64 bits");
  *result = Value::Int(value, a.from_data || b.from_data);
  return true;
}

bool RealArithmetic(Runtime& run, const Node& node, Operator op, const Value& a, const Value& b,
                    Value* result) {
  const double x = a.AsDouble(), y = b.AsDouble();
  double value = 0;
  switch (op) {
    case Operator::kAdd:
      value = x + y;
      break;
    case Operator::kSubtract:
      value = x - y;
      break;
    case Operator::kMultiply:
      value = x * y;
      break;
    case Operator::kPower:
      value = std::pow(x, y);
      break;
    default:
      if (y == 0) return run.Fail(node, "division by zero");
      value = x / y;
      if (op == Operator::kFloorDivide) value = std::floor(value);
      if (op == Operator::kModulo) {
        value = std::fmod(x, y);
        if (value != 0 && (value < 0) != (y < 0)) value += y;
      }
  }
  *result = Value::Float(value, a.from_data || b.from_data);
  return true;
}

// The begin and end of a slice of `size` elements, and the number of elements in it.
struct SliceBounds {
  int64_t begin, end, step;
  uint64_t count;
};

SliceBounds SliceBoundsOf(const Slice& slice, int64_t size) {
  const int64_t step = slice.step.value_or(1);
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto clamp = [&](const std::optional<int64_t>& bound, int64_t otherwise) {
    if (!bound.has_value()) return otherwise;
    const int64_t at = *bound < 0 ? std::max(*bound, -size - 1) + size : *bound;
    return std::clamp(at, lowest, highest);
  };
  const int64_t begin = clamp(slice.begin, step > 0 ? lowest : highest);
  const int64_t end = clamp(slice.end, step > 0 ? highest : lowest);
  const int64_t distance = step > 0 ? end - begin : begin - end;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = distance <= 0 ? 0 : (static_cast<uint64_t>(distance) - 1) / stride + 1;
  return {begin, end, step, count};
}

bool SliceText(Runtime& run, const Node& node, const Text& text, const Slice& slice,
               Value* result) {
  if (!run.Work(node, text.size() / 16)) return false;
  const SliceBounds places =
      SliceBoundsOf(slice, static_cast<int64_t>(CountCharacters(text.bytes())));
  if (places.step == 1) {
    const size_t first = ByteOfCharacter(text.bytes(), static_cast<size_t>(places.begin));
    const size_t bytes = ByteOfCharacter(text.bytes().substr(first), places.count);
    *result = Value::String(run.heap().Slice(text, first, bytes));
    return true;
  }
  const List* characters = Items(run, Value::String(&text), node);
  if (characters == nullptr) return false;
  TextBuilder builder = run.heap().Builder();
  for (uint64_t i = 0; i < places.count; ++i) {
    const int64_t at = places.begin + static_cast<int64_t>(i) * places.step;
    builder.Append(*characters->items[static_cast<size_t>(at)].text);
  }
  *result = Value::String(run.heap().Copy(builder));
  return run.Work(node, places.count);
}

}  // namespace

bool CompareValues(Runtime& run, const Node& node, Operator op, const Value& a, const Value& b,
                   bool* result) {
  switch (op) {
    case Operator::kEqual:
    case Operator::kNotEqual:
      *result = AreEqual(a, b) == (op == Operator::kEqual);
      return true;
    case Operator::kIn:
    case Operator::kNotIn:
      if (!Contains(run, b, a, node, result)) return false;
      *result = *result == (op == Operator::kIn);
      return true;
    default:
      break;
  }
  for (const Value* value : {&a, &b}) {
    if (value->Is(Kind::kUndefined)) return run.Fail(node, UndefinedMessage(*value));
  }
  const int order = Compare(a, b);
  if (order == 2 && !(a.IsNumber() && b.IsNumber())) return run.Fail(node, Mismatch(op, a, b));
  *result = order != 2 && (op == Operator::kLess        ? order < 0
                           : op == Operator::kLessEqual ? order <= 0
                           : op == Operator::kGreater   ? order > 0
                                                        : order >= 0);
  return true;
}

bool Calculate(Runtime& run, const Node& node, Operator op, const Value& a, const Value& b,
               Value* result) {
  if (op == Operator::kModulo && a.Is(Kind::kString)) {
    return FormatPercent(run, node, a, b, result);
  }
  for (const Value* value : {&a, &b}) {
    if (value->Is(Kind::kUndefined)) return run.Fail(node, UndefinedMessage(*value));
  }
  if (a.IsNumber() && b.IsNumber()) {
    const bool whole = a.IsInteger() && b.IsInteger() && op != Operator::kDivide &&
                       !(op == Operator::kPower && b.integer < 0);
    return whole ? IntegerArithmetic(run, node, op, a, b, result)
                 : RealArithmetic(run, node, op, a, b, result);
  }
  if (op == Operator::kAdd && a.Is(Kind::kString)) {
    if (!b.Is(Kind::kString)) {
      return run.Fail(node,
                      "can only concatenate str (not \"" + std::string(TypeName(b)) + "\") to str");
    }
    const bool is_markup = a.is_markup || b.is_markup;
    const Value left = is_markup ? Escaped(run.heap(), a) : a;
    const Value right = is_markup ? Escaped(run.heap(), b) : b;
    *result = Value::String(run.heap().Concat(*left.text, *right.text));
    result->is_markup = is_markup;
    return true;
  }
  if (op == Operator::kAdd) return AddLists(run, node, a, b, result);
  if (op == Operator::kMultiply && b.IsInteger()) return Repeat(run, node, a, b, result);
  if (op == Operator::kMultiply && a.IsInteger()) return Repeat(run, node, b, a, result);
  return run.Fail(node, Mismatch(op, a, b));
}

bool TakeSlice(Runtime& run, const Node& node, const Value& object, const Slice& slice,
               Value* result) {
  if (object.Is(Kind::kUndefined)) return run.Fail(node, UndefinedMessage(object));
  if (slice.step == 0) return run.Fail(node, "slice step cannot be zero");
  if (object.Is(Kind::kString)) {
    if (!SliceText(run, node, *object.text, slice, result)) return false;
    result->is_markup = object.is_markup;
    return true;
  }
  if (!object.IsSequence()) {
    return run.Fail(node, QuotedType(object) + " object is not subscriptable");
  }
  const std::vector<Value>& items = object.list->items;
  const SliceBounds places = SliceBoundsOf(slice, static_cast<int64_t>(items.size()));
  List* list = run.heap().NewList();
  for (uint64_t i = 0; i < places.count; ++i) {
    const int64_t at = places.begin + static_cast<int64_t>(i) * places.step;
    run.heap().Push(list, items[static_cast<size_t>(at)]);
  }
  *result = Value::OfList(list, object.kind);
  return run.Work(node, places.count);
}

}  // namespace kuiper::jinja
