// Literals and names.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>

#include "kuiper/jinja/parser.h"

namespace kuiper::jinja {

const Node* OperandParser::Constant(size_t at, const Value& value) {
  Node* node = New(NodeKind::kConstant, at);
  node->value = value;
  return node;
}

const Node* OperandParser::Primary() {
  const Token& token = Now();
  switch (token.kind) {
    case TokenKind::kName: {
      Advance();
      const std::string_view name = token.text;
      if (name == "true" || name == "True") return Constant(token.at, Value::Bool(true));
      if (name == "false" || name == "False") return Constant(token.at, Value::Bool(false));
      if (name == "none" || name == "None") return Constant(token.at, Value::None());
      Node* node = New(NodeKind::kName, token.at);
      node->name = name;
      return node;
    }
    case TokenKind::kString:
      return StringLiteral();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return Number();
    case TokenKind::kOperator:
      if (token.text == "(") return Parenthesized();
      if (token.text == "[") return ListLiteral();
      if (token.text == "{") return DictLiteral();
      break;
    default:
      break;
  }
  return Unexpected("an expression");
}

const Node* OperandParser::StringLiteral() {
  const size_t at = Now().at;
  std::string text;
  for (; Now().kind == TokenKind::kString; Advance()) text += Unescape(Now().text);
  return Constant(at, constants_->Str(text, kTemplate));
}

const Node* OperandParser::Number() {
  const Token& token = Now();
  std::string text;
  std::copy_if(token.text.begin(), token.text.end(), std::back_inserter(text),
               [](char c) { return c != '_'; });
  const char* end = text.data() + text.size();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end) return Fail("not a number");
    Advance();
    return Constant(token.at, Value::Float(value));
  }
  const char mark = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '0';
  const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  int64_t value = 0;
  const auto read = std::from_chars(text.data() + (base == 10 ? 0 : 2), end, value, base);
  if (read.ec != std::errc() || read.ptr != end) return Fail("not an integer of 64 bits");
  Advance();
  return Constant(token.at, Value::Int(value));
}

const Node* OperandParser::Parenthesized() {
  const size_t at = Now().at;
  Advance();
  if (SkipOperator(")")) return New(NodeKind::kTuple, at);
  const Node* node = TupleOrExpression();
  return node != nullptr && ExpectOperator(")") ? node : nullptr;
}

const Node* OperandParser::ListLiteral() {
  Node* node = New(NodeKind::kList, Now().at);
  Advance();
  while (!SkipOperator("]")) {
    if (!node->kids.empty() && !ExpectOperator(",")) return nullptr;
    if (SkipOperator("]")) break;
    node->kids.push_back(Expression(true));
    if (node->kids.back() == nullptr) return nullptr;
  }
  return node;
}

const Node* OperandParser::DictLiteral() {
  Node* node = New(NodeKind::kDict, Now().at);
  Advance();
  while (!SkipOperator("}")) {
    if (!node->kids.empty() && !ExpectOperator(",")) return nullptr;
    if (SkipOperator("}")) break;
    const Node* key = Expression(true);
    if (key == nullptr || !ExpectOperator(":")) return nullptr;
    const Node* value = Expression(true);
    if (value == nullptr) return nullptr;
    node->kids.insert(node->kids.end(), {key, value});
  }
  return node;
}

bool OperandParser::EndsTuple(std::string_view end_name) const {
  const TokenKind kind = Now().kind;
  return kind == TokenKind::kBlockEnd || kind == TokenKind::kVariableEnd || IsOperator(")") ||
         (!end_name.empty() && IsName(end_name));
}

const Node* OperandParser::TupleOrExpression(bool with_condition, std::string_view end_name) {
  const size_t at = Now().at;
  const Node* first = Expression(with_condition);
  if (first == nullptr || !IsOperator(",")) return first;
  Node* tuple = New(NodeKind::kTuple, at);
  tuple->kids = {first};
  while (SkipOperator(",") && !EndsTuple(end_name)) {
    tuple->kids.push_back(Expression(with_condition));
    if (tuple->kids.back() == nullptr) return nullptr;
  }
  return tuple;
}

}  // namespace kuiper::jinja
