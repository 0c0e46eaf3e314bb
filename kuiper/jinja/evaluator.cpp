#include "kuiper/jinja/evaluator.h"

#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/jinja/operators.h"
#include "kuiper/jinja/print.h"

namespace kuiper::jinja {

Value* Scope::Find(std::string_view name) {
  for (Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (auto& [key, value] : scope->names) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, const Value& value) {
  for (auto& [key, old] : names) {
    if (key != name) continue;
    old = value;
    return;
  }
  names.emplace_back(name, value);
}

bool Expressions::Eval(const Node& node, Value* result) {
  if (!Work(node, 1) || !Enter(node)) return false;
  const bool good = EvalKind(node, result);
  Leave();
  return good;
}

bool Expressions::EvalKind(const Node& node, Value* result) {
  switch (node.kind) {
    case NodeKind::kConstant:
      *result = node.value;
      return true;
    case NodeKind::kName:
      return EvalName(node, result);
    case NodeKind::kList:
      return EvalElements(node, Kind::kList, result);
    case NodeKind::kTuple:
      return EvalElements(node, Kind::kTuple, result);
    case NodeKind::kDict:
      return EvalDict(node, result);
    case NodeKind::kAttribute: {
      Value object;
      return Eval(*node.kids[0], &object) && Attribute(*this, object, node.name, node, result);
    }
    case NodeKind::kElement:
      return EvalElement(node, result);
    case NodeKind::kCall:
      return EvalCall(node, result);
    case NodeKind::kFilter:
      return EvalFilter(node, nullptr, result);
    case NodeKind::kTest:
      return EvalTest(node, result);
    case NodeKind::kNot: {
      bool truth = false;
      if (!EvalTruth(*node.kids[0], &truth)) return false;
      *result = Value::Bool(!truth);
      return true;
    }
    case NodeKind::kNegative:
    case NodeKind::kPositive:
      return EvalSign(node, result);
    case NodeKind::kAnd:
    case NodeKind::kOr:
      if (!Eval(*node.kids[0], result)) return false;
      return IsTrue(*result) == (node.kind == NodeKind::kOr) || Eval(*node.kids[1], result);
    case NodeKind::kArithmetic:
      return EvalArithmetic(node, result);
    case NodeKind::kConcat:
      return EvalConcat(node, result);
    case NodeKind::kCompare:
      return EvalCompare(node, result);
    case NodeKind::kConditional:
      return EvalConditional(node, result);
    default:
      return Fail(node, "not an expression");
  }
}

bool Expressions::EvalTruth(const Node& node, bool* result) {
  Value value;
  if (!Eval(node, &value)) return false;
  *result = IsTrue(value);
  return true;
}

bool Expressions::EvalName(const Node& node, Value* result) {
  if (const Value* found = scope_->Find(node.name)) {
    *result = *found;
    return true;
  }
  if (const Builtin* global = FindGlobal(node.name)) {
    *result = Value::Undefined(&node);
    result->kind = Kind::kGlobal;
    result->builtin = global;
    return true;
  }
  *result = Value::Undefined(&node);
  return true;
}

bool Expressions::EvalElements(const Node& node, Kind kind, Value* result) {
  List* list = heap().NewList();
  for (const Node* kid : node.kids) {
    Value value;
    if (!Eval(*kid, &value)) return false;
    heap().Push(list, value);
  }
  *result = Value::OfList(list, kind);
  return true;
}

bool Expressions::EvalDict(const Node& node, Value* result) {
  Dict* dict = heap().NewDict();
  for (size_t i = 0; i < node.kids.size(); i += 2) {
    Value key, value;
    if (!Eval(*node.kids[i], &key) || !Eval(*node.kids[i + 1], &value)) return false;
    if (!IsHashable(key)) {
      return Fail(node, "unhashable type: " + QuotedType(key));
    }
    heap().Set(dict, key, value);
  }
  *result = Value::OfDict(dict);
  return true;
}

bool Expressions::EvalElement(const Node& node, Value* result) {
  Value object;
  if (!Eval(*node.kids[0], &object)) return false;
  const Node& key_node = *node.kids[1];
  if (key_node.kind == NodeKind::kSlice) return EvalSlice(object, key_node, result);
  Value key;
  return Eval(key_node, &key) && Element(*this, object, key, node, result);
}

bool Expressions::EvalConcat(const Node& node, Value* result) {
  TextBuilder builder = heap().Builder();
  for (const Node* kid : node.kids) {
    Value value;
    if (!Eval(*kid, &value)) return false;
    AppendStr(value, &builder);
  }
  *result = Value::String(heap().Copy(builder));
  return true;
}

bool Expressions::EvalSign(const Node& node, Value* result) {
  if (!Eval(*node.kids[0], result)) return false;
  if (!result->IsNumber()) {
    return Fail(node, result->Is(Kind::kUndefined)
                          ? UndefinedMessage(*result)
                          : "bad operand type for a sign: " + QuotedType(*result));
  }
  const bool negative = node.kind == NodeKind::kNegative;
  if (result->Is(Kind::kFloat)) {
    if (negative) result->real = -result->real;
  } else if (negative && result->integer == INT64_MIN) {
    return Fail(node, "the integer does not fit into 64 bits");
  } else {
    *result = Value::Int(negative ? -result->integer : result->integer, result->from_data);
  }
  return true;
}

bool Expressions::EvalConditional(const Node& node, Value* result) {
  bool truth = false;
  if (!EvalTruth(*node.kids[0], &truth)) return false;
  const Node* chosen = node.kids[truth ? 1 : 2];
  if (chosen != nullptr) return Eval(*chosen, result);
  *result = Value::Undefined(&node);
  return true;
}

bool Expressions::EvalSlice(const Value& object, const Node& node, Value* result) {
  Slice slice;
  std::optional<int64_t>* const bounds[] = {&slice.begin, &slice.end, &slice.step};
  for (size_t i = 0; i < 3; ++i) {
    if (node.kids[i] == nullptr) continue;
    Value value;
    if (!Eval(*node.kids[i], &value)) return false;
    if (value.Is(Kind::kNone)) continue;
    if (!value.IsInteger()) return Fail(node, "slice indices must be integers or None");
    *bounds[i] = value.integer;
  }
  return TakeSlice(*this, node, object, slice, result);
}

bool Expressions::EvalCompare(const Node& node, Value* result) {
  Value left;
  if (!Eval(*node.kids[0], &left)) return false;
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right;
    bool holds = false;
    if (!Eval(*node.kids[i + 1], &right) ||
        !CompareValues(*this, node, node.operators[i], left, right, &holds)) {
      return false;
    }
    *result = Value::Bool(holds);
    if (!holds) return true;
    left = right;
  }
  return true;
}

bool Expressions::EvalArithmetic(const Node& node, Value* result) {
  Value a, b;
  return Eval(*node.kids[0], &a) && Eval(*node.kids[1], &b) &&
         Calculate(*this, node, node.operators[0], a, b, result);
}

}  // namespace kuiper::jinja
