// Parses what follows an operand: attributes, elements, calls, filters and tests.
#include <string>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/parser.h"

namespace kuiper::jinja {

const Node* OperandParser::Postfix(const Node* node) {
  for (int parts = 0; node != nullptr; ++parts) {
    const bool is_call = IsOperator("(");
    if (!is_call && !IsOperator(".") && !IsOperator("[")) break;
    if (parts > kMaxDepth) return Fail("expressions are nested too deep");
    node = is_call ? Call(node) : Subscript(node);
  }
  return node;
}

const Node* OperandParser::Call(const Node* node) {
  Node* call = New(NodeKind::kCall, node->at);
  call->kids = {node};
  return CallArguments(&call->arguments) ? call : nullptr;
}

const Node* OperandParser::Subscript(const Node* node) {
  const size_t at = Now().at;
  if (SkipOperator(".")) {
    if (Now().kind == TokenKind::kName) {
      Node* attribute = New(NodeKind::kAttribute, at);
      attribute->name = Now().text;
      attribute->kids = {node};
      Advance();
      return attribute;
    }
    if (Now().kind != TokenKind::kInteger) return Unexpected("a name or a number");
    const Node* index = Number();
    return index == nullptr ? nullptr : NewBinary(NodeKind::kElement, node, index);
  }
  Advance();
  const Node* index = SliceOrIndex();
  if (index == nullptr) return nullptr;
  if (IsOperator(",")) {
    Node* tuple = New(NodeKind::kTuple, at);
    tuple->kids = {index};
    while (SkipOperator(",")) {
      tuple->kids.push_back(SliceOrIndex());
      if (tuple->kids.back() == nullptr) return nullptr;
      if (tuple->kids.back()->kind == NodeKind::kSlice) return Fail("a slice in a tuple");
    }
    if (index->kind == NodeKind::kSlice) return Fail("a slice in a tuple");
    index = tuple;
  }
  return ExpectOperator("]") ? NewBinary(NodeKind::kElement, node, index) : nullptr;
}

const Node* OperandParser::SliceOrIndex() {
  const size_t at = Now().at;
  const Node* parts[3] = {nullptr, nullptr, nullptr};
  int colons = 0;
  while (!IsOperator("]") && !IsOperator(",")) {
    if (SkipOperator(":")) {
      if (++colons > 2) return Fail("a slice has three parts");
      continue;
    }
    if (parts[colons] != nullptr) return Unexpected("']'");
    parts[colons] = Expression(true);
    if (parts[colons] == nullptr) return nullptr;
  }
  if (colons == 0) return parts[0] != nullptr ? parts[0] : Unexpected("an expression");
  Node* slice = New(NodeKind::kSlice, at);
  slice->kids = {parts[0], parts[1], parts[2]};
  return slice;
}

bool OperandParser::CallArguments(Arguments* arguments) {
  if (!ExpectOperator("(")) return false;
  bool first = true;
  while (!SkipOperator(")")) {
    if (!first && !ExpectOperator(",")) return false;
    if (!first && SkipOperator(")")) break;
    first = false;
    const Node** more = IsOperator("*")    ? &arguments->more_positional
                        : IsOperator("**") ? &arguments->more_keyword
                                           : nullptr;
    if (more != nullptr) Advance();
    std::string_view name;
    const bool has_name = more == nullptr && Now().kind == TokenKind::kName &&
                          Ahead().kind == TokenKind::kOperator && Ahead().text == "=";
    if (has_name) {
      name = Now().text;
      Advance();
      Advance();
    }
    const Node* value = Expression(true);
    if (value == nullptr) return false;
    if (more != nullptr) {
      if (*more != nullptr) return Fail("two lists of arguments") != nullptr;
      *more = value;
    } else if (has_name) {
      arguments->keyword.emplace_back(name, value);
    } else if (!arguments->keyword.empty() || arguments->more_keyword != nullptr) {
      return Fail("a positional argument follows a keyword argument") != nullptr;
    } else {
      arguments->positional.push_back(value);
    }
  }
  return true;
}

const Node* OperandParser::FilterChain(const Node* operand, bool starts_inline) {
  const Node* node = operand;
  const bool is_block = operand == nullptr;  // {% filter %} and {% set %} take filters only
  for (int parts = 0;; ++parts) {
    const bool is_filter = starts_inline || IsOperator("|");
    if (parts > kMaxDepth) return Fail("expressions are nested too deep");
    if (is_filter) {
      if (!starts_inline) Advance();
      starts_inline = false;
      Node* filter = New(NodeKind::kFilter, Now().at);
      if (!ExpectName(&filter->name)) return nullptr;
      filter->kids = {node};
      filter->builtin = FindFilter(filter->name);
      if (filter->builtin == nullptr && conditions_ == 0) {
        return FailAt(filter->at, "there is no filter " + Quoted(filter->name));
      }
      if (IsOperator("(") && !CallArguments(&filter->arguments)) return nullptr;
      node = filter;
    } else if (!is_block && IsName("is")) {
      node = Test(node);
    } else if (!is_block && IsOperator("(")) {
      node = Call(node);
    } else {
      return node;
    }
    if (node == nullptr) return nullptr;
  }
}

bool OperandParser::StartsArgument() const {
  switch (Now().kind) {
    case TokenKind::kName:
      return !IsName("else") && !IsName("or") && !IsName("and") && !IsName("if");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    case TokenKind::kOperator:
      return IsOperator("[") || IsOperator("{");
    default:
      return false;
  }
}

const Node* OperandParser::Test(const Node* node) {
  Node* test = New(NodeKind::kTest, Now().at);
  Advance();
  test->negated = SkipName("not");
  if (!ExpectName(&test->name)) return nullptr;
  test->kids = {node};
  test->builtin = FindTest(test->name);
  if (test->builtin == nullptr && conditions_ == 0) {
    return FailAt(test->at, "there is no test " + Quoted(test->name));
  }
  if (IsOperator("(")) return CallArguments(&test->arguments) ? test : nullptr;
  if (!StartsArgument()) return test;
  if (IsName("is")) return Fail("tests cannot be chained with is");
  const Node* argument = Primary();
  if (argument != nullptr) argument = Postfix(argument);
  if (argument == nullptr) return nullptr;
  test->arguments.positional = {argument};
  return test;
}

}  // namespace kuiper::jinja
