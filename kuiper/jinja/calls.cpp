// Calls of functions, methods, filters and tests.
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/jinja/evaluator.h"
#include "kuiper/jinja/markup.h"

namespace kuiper::jinja {

bool Expressions::EvalArguments(const Node& node, std::vector<Value>* args, Keywords* keywords) {
  const Arguments& given = node.arguments;
  for (const Node* argument : given.positional) {
    if (!Eval(*argument, &args->emplace_back())) return false;
  }
  if (given.more_positional != nullptr) {
    Value value;
    if (!Eval(*given.more_positional, &value)) return false;
    const List* items = Items(*this, value, node);
    if (items == nullptr) return false;
    args->insert(args->end(), items->items.begin(), items->items.end());
  }
  for (const auto& [name, argument] : given.keyword) {
    keywords->emplace_back(name, Value());
    if (!Eval(*argument, &keywords->back().second)) return false;
  }
  if (given.more_keyword != nullptr) {
    Value value;
    if (!Eval(*given.more_keyword, &value)) return false;
    if (!value.Is(Kind::kDict)) return Fail(node, "argument after ** must be a mapping");
    for (const auto& [key, entry] : value.dict->entries) {
      if (!key.Is(Kind::kString)) return Fail(node, "keywords must be strings");
      keywords->emplace_back(key.bytes(), entry);
    }
  }
  return true;
}

bool Expressions::EvalCall(const Node& node, Value* result) {
  const Node& callee_node = *node.kids[0];
  std::vector<Value> args;
  Keywords keywords;
  // Calls a method without creating a value for it.
  if (callee_node.kind == NodeKind::kAttribute) {
    Value object;
    if (!Eval(*callee_node.kids[0], &object)) return false;
    if (const Builtin* method = FindMethod(object.kind, callee_node.name)) {
      return EvalArguments(node, &args, &keywords) &&
             CallMethod(*this, *method, node, object, std::move(args), std::move(keywords), result);
    }
    if (object.Is(Kind::kLoop)) {
      return EvalArguments(node, &args, &keywords) &&
             CallLoop(object.loop, callee_node.name, node, args, result);
    }
    Value callee;
    return Attribute(*this, object, callee_node.name, callee_node, &callee) &&
           EvalArguments(node, &args, &keywords) &&
           CallValue(callee, node, std::move(args), std::move(keywords), result);
  }
  Value callee;
  return Eval(callee_node, &callee) && EvalArguments(node, &args, &keywords) &&
         CallValue(callee, node, std::move(args), std::move(keywords), result);
}

bool Expressions::CallValue(const Value& callee, const Node& node, std::vector<Value> args,
                            Keywords keywords, Value* result) {
  switch (callee.kind) {
    case Kind::kUndefined:
      return Fail(node, UndefinedMessage(callee));
    case Kind::kGlobal:
      return CallBuiltin(*this, *callee.builtin, node, {}, std::move(args), std::move(keywords),
                         result);
    case Kind::kMethod: {
      const Builtin* method = FindMethod(callee.method->self.kind, callee.method->name);
      return CallMethod(*this, *method, node, callee.method->self, std::move(args),
                        std::move(keywords), result);
    }
    case Kind::kMacro:
      return CallMacro(*callee.macro, node, args, keywords, result);
    case Kind::kLoop:
      return CallLoop(callee.loop, "", node, args, result);
    default:
      return Fail(node, QuotedType(callee) + " object is not callable");
  }
}

bool Expressions::EvalFilter(const Node& node, const Value* operand, Value* result) {
  Value self;
  if (node.kids[0] == nullptr) {
    self = *operand;
  } else if (operand != nullptr && node.kids[0]->kind == NodeKind::kFilter) {
    // In {% filter %} and {% set %}, the filter chain is applied to the text of the block.
    if (!EvalFilter(*node.kids[0], operand, &self)) return false;
  } else if (!Eval(*node.kids[0], &self)) {
    return false;
  }
  if (node.builtin == nullptr) return Fail(node, "there is no filter " + Quoted(node.name));
  std::vector<Value> args;
  Keywords keywords;
  return EvalArguments(node, &args, &keywords) &&
         CallBuiltin(*this, *node.builtin, node, self, std::move(args), std::move(keywords),
                     result);
}

bool Expressions::EvalTest(const Node& node, Value* result) {
  Value self;
  if (!Eval(*node.kids[0], &self)) return false;
  if (node.builtin == nullptr) return Fail(node, "there is no test " + Quoted(node.name));
  std::vector<Value> args;
  Keywords keywords;
  if (!EvalArguments(node, &args, &keywords) ||
      !CallBuiltin(*this, *node.builtin, node, self, std::move(args), std::move(keywords),
                   result)) {
    return false;
  }
  *result = Value::Bool(IsTrue(*result) != node.negated);
  return true;
}

}  // namespace kuiper::jinja
