// Evaluates the tree of a template: Expressions compute values, Statements print and assign.
// Created for one rendering.
#pragma once

#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/jinja/ast.h"
#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/runtime.h"
#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

// Names and their values. A name that is missing here is looked up in the parent.
struct Scope {
  Scope* parent = nullptr;
  bool is_captured = false;  // a macro refers to it
  std::vector<std::pair<std::string_view, Value>> names;

  Value* Find(std::string_view name);
  void Set(std::string_view name, const Value& value);
};

struct Macro {
  const Node* node;  // kMacro, or kCallBlock: its caller
  Scope* scope;      // the scope of its definition
};

struct Loop {
  const Node* node;
  Scope* scope;  // the scope around the loop
  const List* items;
  size_t index = 0;
  int depth = 1;
  Value changed = {};  // the last arguments of changed()
};

class Expressions : public Runtime {
 public:
  using Runtime::Runtime;

 protected:
  bool Eval(const Node& node, Value* result);
  bool EvalTruth(const Node& node, bool* result);
  bool EvalArguments(const Node& node, std::vector<Value>* args, Keywords* keywords);
  // `operand`: the text of a block, to which the chain of filters is applied.
  bool EvalFilter(const Node& node, const Value* operand, Value* result);
  bool CallValue(const Value& callee, const Node& node, std::vector<Value> args, Keywords keywords,
                 Value* result);
  virtual bool CallMacro(const Macro& macro, const Node& node, const std::vector<Value>& args,
                         const Keywords& keywords, Value* result) = 0;
  // Calls loop(items), loop.cycle(...) or loop.changed(...).
  virtual bool CallLoop(Loop* loop, std::string_view method, const Node& node,
                        const std::vector<Value>& args, Value* result) = 0;

  Scope* scope_ = nullptr;

 private:
  bool EvalKind(const Node& node, Value* result);
  bool EvalName(const Node& node, Value* result);
  bool EvalElements(const Node& node, Kind kind, Value* result);
  bool EvalDict(const Node& node, Value* result);
  bool EvalElement(const Node& node, Value* result);
  bool EvalSlice(const Value& object, const Node& node, Value* result);
  bool EvalConcat(const Node& node, Value* result);
  bool EvalSign(const Node& node, Value* result);
  bool EvalConditional(const Node& node, Value* result);
  bool EvalCompare(const Node& node, Value* result);
  bool EvalArithmetic(const Node& node, Value* result);
  bool EvalCall(const Node& node, Value* result);
  bool EvalTest(const Node& node, Value* result);
};

class Statements final : public Expressions {
 public:
  using Expressions::Expressions;

  // Renders the statements. Call once.
  bool Run(const std::vector<const Node*>& body, const Template::Variables& variables);
  Rendered Take();

 private:
  enum class Flow { kNext, kBreak, kContinue, kFailed };

  bool CallMacro(const Macro& macro, const Node& node, const std::vector<Value>& args,
                 const Keywords& keywords, Value* result) override;
  bool CallLoop(Loop* loop, std::string_view method, const Node& node,
                const std::vector<Value>& args, Value* result) override;
  bool BindMacro(const Macro& macro, const Node& node, const std::vector<Value>& args,
                 const Keywords& keywords);
  Flow Execute(const std::vector<const Node*>& body);
  Flow ExecuteOne(const Node& node);
  Flow ExecuteIf(const Node& node);
  Flow ExecuteFor(const Node& node);
  Flow ExecuteSet(const Node& node);
  Flow ExecuteCallBlock(const Node& node);
  Flow ExecuteFilterBlock(const Node& node);
  Flow ExecuteWith(const Node& node);
  Flow ExecuteIn(const std::vector<const Node*>& body, Scope* scope);
  Flow Iterate(const Node& node, const List& items, int depth);
  bool Output(const Node& node, const Value& value);
  bool Assign(const Target& target, const Value& value, const Node& node);
  bool Filtered(const Node& node, const List& items, List** result);
  // Returns the text that `body` prints.
  bool Capture(const std::vector<const Node*>& body, Scope* scope, const Node& node, Value* result);
  Scope* NewScope(Scope* parent);
  Value NewMacro(const Node& node);

  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  std::deque<Loop> loops_;
};

}  // namespace kuiper::jinja
