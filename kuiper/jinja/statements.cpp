// Executes statements: output, assignments, blocks and loops.
#include <algorithm>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/jinja/evaluator.h"
#include "kuiper/jinja/print.h"

namespace kuiper::jinja {

bool Statements::Run(const std::vector<const Node*>& body, const Template::Variables& variables) {
  scope_ = NewScope(nullptr);
  for (const auto& [name, value] : variables) scope_->Set(name, value);
  return Execute(body) != Flow::kFailed;
}

Rendered Statements::Take() {
  return {output_.TakeBytes(), output_.TakeRuns()};
}

Scope* Statements::NewScope(Scope* parent) {
  heap().Charge(sizeof(Scope) + 4 * sizeof(Value));
  Scope& scope = scopes_.emplace_back();
  scope.parent = parent;
  return &scope;
}

Value Statements::NewMacro(const Node& node) {
  for (Scope* scope = scope_; scope != nullptr && !scope->is_captured; scope = scope->parent) {
    scope->is_captured = true;
  }
  heap().Charge(sizeof(Macro));
  Value value = Value::None();
  value.kind = Kind::kMacro;
  value.macro = &macros_.emplace_back(Macro{&node, scope_});
  return value;
}

Statements::Flow Statements::Execute(const std::vector<const Node*>& body) {
  for (const Node* node : body) {
    if (!Work(*node, 1) || !Enter(*node)) return Flow::kFailed;
    const Flow flow = ExecuteOne(*node);
    Leave();
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Statements::Flow Statements::ExecuteIn(const std::vector<const Node*>& body, Scope* scope) {
  Scope* const outer = std::exchange(scope_, scope);
  const Flow flow = Execute(body);
  scope_ = outer;
  return flow;
}

Statements::Flow Statements::ExecuteOne(const Node& node) {
  switch (node.kind) {
    case NodeKind::kData:
      out_->Append(*node.value.text);
      return Flow::kNext;
    case NodeKind::kOutput: {
      Value value;
      return Eval(*node.kids[0], &value) && Output(node, value) ? Flow::kNext : Flow::kFailed;
    }
    case NodeKind::kIf:
      return ExecuteIf(node);
    case NodeKind::kFor:
      return ExecuteFor(node);
    case NodeKind::kSet:
      return ExecuteSet(node);
    case NodeKind::kMacro:
      scope_->Set(node.name, NewMacro(node));
      return Flow::kNext;
    case NodeKind::kCallBlock:
      return ExecuteCallBlock(node);
    case NodeKind::kFilterBlock:
      return ExecuteFilterBlock(node);
    case NodeKind::kWith:
      return ExecuteWith(node);
    case NodeKind::kScope:
      return ExecuteIn(node.body, NewScope(scope_));
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      Fail(node, "not a statement");
      return Flow::kFailed;
  }
}

bool Statements::Output(const Node& node, const Value& value) {
  AppendStr(value, out_);
  return Work(node, 0);
}

Statements::Flow Statements::ExecuteIf(const Node& node) {
  for (size_t i = 0; i < node.kids.size(); ++i) {
    bool truth = false;
    if (!EvalTruth(*node.kids[i], &truth)) return Flow::kFailed;
    if (truth) return Execute(node.bodies[i]);
  }
  return Execute(node.other);
}

bool Statements::Assign(const Target& target, const Value& value, const Node& node) {
  if (!target.parts.empty()) {
    const List* items = Items(*this, value, node);
    if (items == nullptr) return false;
    if (items->items.size() != target.parts.size()) {
      return Fail(node, "cannot unpack " + std::to_string(items->items.size()) + " values into " +
                            std::to_string(target.parts.size()));
    }
    for (size_t i = 0; i < target.parts.size(); ++i) {
      if (!Assign(target.parts[i], items->items[i], node)) return false;
    }
    return true;
  }
  if (target.attribute.empty()) {
    scope_->Set(target.name, value);
    return true;
  }
  const Value* owner = scope_->Find(target.name);
  if (owner == nullptr || !owner->Is(Kind::kNamespace)) {
    return Fail(node, "cannot assign attribute on non-namespace object");
  }
  Dict* dict = owner->dict;
  heap().Set(dict, Value::String(heap().Refer(target.attribute, kTemplate)), value);
  return true;
}

Statements::Flow Statements::ExecuteSet(const Node& node) {
  Value value;
  const bool good = node.kids.empty()
                        ? Capture(node.body, NewScope(scope_), node, &value) &&
                              (node.filter == nullptr || EvalFilter(*node.filter, &value, &value))
                        : Eval(*node.kids[0], &value);
  return good && Assign(node.target, value, node) ? Flow::kNext : Flow::kFailed;
}

bool Statements::Capture(const std::vector<const Node*>& body, Scope* scope, const Node& node,
                         Value* result) {
  TextBuilder builder = heap().Builder();
  TextBuilder* const outer = std::exchange(out_, &builder);
  const Flow flow = ExecuteIn(body, scope);
  const bool good = flow != Flow::kFailed && Work(node, 0);
  out_ = outer;
  if (!good) return false;
  *result = Value::String(heap().Copy(builder));
  return true;
}

Statements::Flow Statements::ExecuteFilterBlock(const Node& node) {
  Value value;
  const bool good = Capture(node.body, NewScope(scope_), node, &value) &&
                    EvalFilter(*node.filter, &value, &value) && Output(node, value);
  return good ? Flow::kNext : Flow::kFailed;
}

Statements::Flow Statements::ExecuteCallBlock(const Node& node) {
  const Node& call = *node.kids[0];
  Value callee, result;
  std::vector<Value> args;
  Keywords keywords;
  if (!Eval(*call.kids[0], &callee) || !EvalArguments(call, &args, &keywords)) {
    return Flow::kFailed;
  }
  keywords.emplace_back("caller", NewMacro(node));
  const bool good = CallValue(callee, call, std::move(args), std::move(keywords), &result) &&
                    Output(node, result);
  return good ? Flow::kNext : Flow::kFailed;
}

Statements::Flow Statements::ExecuteWith(const Node& node) {
  Scope* scope = NewScope(scope_);
  for (size_t i = 0; i < node.kids.size(); ++i) {
    Value value;
    if (!Eval(*node.kids[i], &value)) return Flow::kFailed;
    Scope* const outer = std::exchange(scope_, scope);
    const bool good = Assign(node.targets[i], value, node);
    scope_ = outer;
    if (!good) return Flow::kFailed;
  }
  return ExecuteIn(node.body, scope);
}

bool Statements::Filtered(const Node& node, const List& items, List** result) {
  *result = heap().NewList();
  Scope* const outer = scope_;
  scope_ = NewScope(outer);
  bool good = true;
  for (size_t i = 0; i < items.items.size() && good; ++i) {
    bool truth = false;
    good = Assign(node.target, items.items[i], node) && EvalTruth(*node.kids[1], &truth);
    if (good && truth) heap().Push(*result, items.items[i]);
  }
  scope_ = outer;
  return good;
}

Statements::Flow Statements::ExecuteFor(const Node& node) {
  Value value;
  if (!Eval(*node.kids[0], &value)) return Flow::kFailed;
  const List* items = Items(*this, value, node);
  return items == nullptr ? Flow::kFailed : Iterate(node, *items, 1);
}

Statements::Flow Statements::Iterate(const Node& node, const List& all, int depth) {
  const List* items = &all;
  if (node.kids[1] != nullptr) {
    List* filtered = nullptr;
    if (!Filtered(node, all, &filtered)) return Flow::kFailed;
    items = filtered;
  }
  Scope* const outer = scope_;
  if (items->items.empty()) return ExecuteIn(node.other, NewScope(outer));
  heap().Charge(sizeof(Loop));
  Loop& loop = loops_.emplace_back(Loop{&node, outer, items});
  loop.depth = depth;
  Value loop_value = Value::None();
  loop_value.kind = Kind::kLoop;
  loop_value.loop = &loop;
  Flow flow = Flow::kNext;
  Scope* scope = nullptr;
  for (; loop.index < items->items.size() && flow != Flow::kFailed; ++loop.index) {
    // A macro defined in an earlier iteration keeps the names of that iteration.
    if (scope == nullptr || scope->is_captured) scope = NewScope(outer);
    scope->names.clear();
    scope->Set("loop", loop_value);
    scope_ = scope;
    flow = Assign(node.target, items->items[loop.index], node) ? Execute(node.body) : Flow::kFailed;
    scope_ = outer;
    if (flow == Flow::kBreak) break;
  }
  return flow == Flow::kFailed ? flow : Flow::kNext;
}

bool Statements::CallMacro(const Macro& macro, const Node& node, const std::vector<Value>& args,
                           const Keywords& keywords, Value* result) {
  Scope* const outer = scope_;
  Scope* const scope = NewScope(macro.scope);
  scope_ = scope;
  if (!Enter(node)) return false;
  const bool good = BindMacro(macro, node, args, keywords);
  scope_ = outer;
  if (!good) return false;
  const bool rendered = Capture(macro.node->body, scope, node, result);
  Leave();
  return rendered;
}

// Assigns the arguments in scope_, which is the macro's own scope.
bool Statements::BindMacro(const Macro& macro, const Node& node, const std::vector<Value>& args,
                           const Keywords& keywords) {
  const std::vector<Parameter>& parameters = macro.node->parameters;
  List* more = heap().NewList();
  Dict* more_named = heap().NewDict();
  if (args.size() > parameters.size() && !macro.node->takes_varargs) {
    return Fail(node,
                "the macro takes at most " + std::to_string(parameters.size()) + " arguments");
  }
  for (size_t i = parameters.size(); i < args.size(); ++i) heap().Push(more, args[i]);
  for (const auto& keyword : keywords) {
    const std::string_view name = keyword.first;
    const Value& value = keyword.second;
    const bool known = std::any_of(parameters.begin(), parameters.end(),
                                   [&](const Parameter& p) { return p.name == name; });
    if (known) continue;
    if (name == "caller") {
      scope_->Set("caller", value);
    } else if (!macro.node->takes_kwargs) {
      return Fail(node, "the macro takes no keyword argument " + Quoted(name));
    } else {
      heap().Set(more_named, Value::String(heap().Refer(name, kTemplate)), value);
    }
  }
  scope_->Set("varargs", Value::OfList(more, Kind::kTuple));
  scope_->Set("kwargs", Value::OfDict(more_named));
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const auto named = std::find_if(keywords.begin(), keywords.end(), [&](const auto& keyword) {
      return keyword.first == parameter.name;
    });
    Value value = Value::Undefined(nullptr);
    if (i < args.size()) {
      value = args[i];
    } else if (named != keywords.end()) {
      value = named->second;
    } else if (parameter.value != nullptr && !Eval(*parameter.value, &value)) {
      return false;
    }
    scope_->Set(parameter.name, value);
  }
  return Work(node, parameters.size());
}

bool Statements::CallLoop(Loop* loop, std::string_view method, const Node& node,
                          const std::vector<Value>& args, Value* result) {
  if (method == "cycle" && !args.empty()) {
    *result = args[loop->index % args.size()];
    return true;
  }
  if (method == "changed") {
    List* list = heap().NewList();
    for (const Value& value : args) heap().Push(list, value);
    const Value tuple = Value::OfList(list, Kind::kTuple);
    *result = Value::Bool(!AreEqual(loop->changed, tuple));
    loop->changed = tuple;
    return true;
  }
  if (!method.empty()) {
    return Fail(node, "the loop has no method " + Quoted(method) + " for these arguments");
  }
  if (!loop->node->recursive) return Fail(node, "the loop is not recursive");
  if (args.size() != 1) return Fail(node, "a recursive loop takes one argument, the items");
  const List* items = Items(*this, args[0], node);
  if (items == nullptr) return false;
  if (!Enter(node)) return false;
  TextBuilder builder = heap().Builder();
  TextBuilder* const outer = std::exchange(out_, &builder);
  Scope* const scope = std::exchange(scope_, loop->scope);
  const Flow flow = Iterate(*loop->node, *items, loop->depth + 1);
  scope_ = scope;
  out_ = outer;
  Leave();
  if (flow == Flow::kFailed) return false;
  *result = Value::String(heap().Copy(builder));
  return true;
}

}  // namespace kuiper::jinja
