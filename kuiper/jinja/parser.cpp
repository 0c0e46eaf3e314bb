#include "kuiper/jinja/parser.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/jinja/builtin.h"

namespace kuiper::jinja {

StatusOr<std::vector<const Node*>> Parser::Run() {
  Body body;
  if (!Statements({}, &body)) return status_;
  return body;
}

bool Parser::EndOfTag() {
  if (Now().kind == TokenKind::kBlockEnd) {
    Advance();
    return true;
  }
  Unexpected("'%}'");
  return false;
}

bool Parser::Statements(std::initializer_list<std::string_view> ends, Body* body) {
  const size_t begin = Now().at;
  if (++depth_ > kMaxDepth) return Fail("statements are nested too deep") != nullptr;
  while (true) {
    const Token& token = Now();
    Advance();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() > 0) {
        return FailAt(begin, "a block has no {% " + std::string(*(ends.end() - 1)) + " %}") !=
               nullptr;
      }
      break;
    }
    if (token.kind == TokenKind::kData) {
      Node* data = New(NodeKind::kData, token.at);
      data->value = Value::String(constants_->Refer(token.text, kTemplate));
      body->push_back(data);
    } else if (token.kind == TokenKind::kVariableBegin) {
      Node* output = New(NodeKind::kOutput, token.at);
      output->kids = {TupleOrExpression()};
      if (output->kids[0] == nullptr) return false;
      if (Now().kind != TokenKind::kVariableEnd) return Unexpected("'}}'") != nullptr;
      Advance();
      body->push_back(output);
    } else {
      if (std::any_of(ends.begin(), ends.end(), [&](std::string_view e) { return IsName(e); })) {
        break;
      }
      body->push_back(Statement());
      if (body->back() == nullptr || !EndOfTag()) return false;
    }
  }
  --depth_;
  return true;
}

bool Parser::Block(std::string_view end, Body* body) {
  if (!EndOfTag() || !Statements({end}, body)) return false;
  Advance();
  return true;
}

const Node* Parser::Statement() {
  using Method = const Node* (Parser::*)();
  constexpr std::pair<std::string_view, Method> kStatements[] = {
      {"for", &Parser::For},        {"if", &Parser::If},
      {"set", &Parser::Set},        {"macro", &Parser::Macro},
      {"call", &Parser::CallBlock}, {"filter", &Parser::FilterBlock},
      {"with", &Parser::With},      {"generation", &Parser::Generation},
  };
  if (Now().kind != TokenKind::kName) return Unexpected("the name of a statement");
  for (const auto& [name, method] : kStatements) {
    if (IsName(name)) return (this->*method)();
  }
  if (IsName("break") || IsName("continue")) {
    if (loops_ == 0) return Fail("outside of a loop");
    Node* node = New(IsName("break") ? NodeKind::kBreak : NodeKind::kContinue, Now().at);
    Advance();
    return node;
  }
  return Fail("there is no statement " + Quoted(Now().text));
}

bool Parser::OneTarget(Target* target, bool with_attribute) {
  if (SkipOperator("(")) {
    if (!ParseTarget(target, with_attribute)) return false;
    return ExpectOperator(")");
  }
  if (!ExpectName(&target->name)) return false;
  return !with_attribute || !SkipOperator(".") || ExpectName(&target->attribute);
}

bool Parser::ParseTarget(Target* target, bool with_attribute) {
  if (++depth_ > kMaxDepth) return Fail("targets are nested too deep") != nullptr;
  if (!OneTarget(target, with_attribute)) return false;
  --depth_;
  if (!IsOperator(",")) return true;
  Target tuple;
  tuple.parts.push_back(std::move(*target));
  while (SkipOperator(",") && (Now().kind == TokenKind::kName || IsOperator("("))) {
    if (IsName("in")) break;
    if (!OneTarget(&tuple.parts.emplace_back(), with_attribute)) return false;
  }
  *target = std::move(tuple);
  return true;
}

const Node* Parser::For() {
  Node* node = New(NodeKind::kFor, Now().at);
  Advance();
  if (!ParseTarget(&node->target, false)) return nullptr;
  if (!SkipName("in")) return Unexpected("in");
  node->kids = {TupleOrExpression(/*with_condition=*/false, "recursive"), nullptr};
  if (node->kids[0] == nullptr) return nullptr;
  if (SkipName("if")) {
    node->kids[1] = Expression(true);
    if (node->kids[1] == nullptr) return nullptr;
  }
  node->recursive = SkipName("recursive");
  ++loops_;
  if (!EndOfTag() || !Statements({"else", "endfor"}, &node->body)) return nullptr;
  --loops_;
  if (SkipName("else")) return Block("endfor", &node->other) ? node : nullptr;
  Advance();
  return node;
}

const Node* Parser::If() {
  Node* node = New(NodeKind::kIf, Now().at);
  Advance();
  ++conditions_;
  while (true) {
    node->kids.push_back(TupleOrExpression(/*with_condition=*/false));
    if (node->kids.back() == nullptr || !EndOfTag()) return nullptr;
    Body body;
    if (!Statements({"elif", "else", "endif"}, &body)) return nullptr;
    node->bodies.push_back(std::move(body));
    if (!SkipName("elif")) break;
  }
  const bool has_else = IsName("else");
  Advance();
  if (has_else && !Block("endif", &node->other)) return nullptr;
  --conditions_;
  return node;
}

const Node* Parser::Set() {
  Node* node = New(NodeKind::kSet, Now().at);
  Advance();
  if (!ParseTarget(&node->target, true)) return nullptr;
  if (SkipOperator("=")) {
    node->kids = {TupleOrExpression()};
    return node->kids[0] == nullptr ? nullptr : node;
  }
  if (IsOperator("|")) {
    node->filter = FilterChain(nullptr, false);
    if (node->filter == nullptr) return nullptr;
  }
  return Block("endset", &node->body) ? node : nullptr;
}

bool Parser::Signature(std::vector<Parameter>* parameters) {
  if (!ExpectOperator("(")) return false;
  while (!SkipOperator(")")) {
    if (!parameters->empty() && !ExpectOperator(",")) return false;
    if (SkipOperator(")")) break;
    Parameter parameter;
    if (!ExpectName(&parameter.name)) return false;
    if (SkipOperator("=")) {
      parameter.value = Expression(true);
      if (parameter.value == nullptr) return false;
    } else if (!parameters->empty() && parameters->back().value != nullptr) {
      return Fail("a parameter without a default follows one with a default") != nullptr;
    }
    parameters->push_back(parameter);
  }
  return true;
}

bool Parser::MacroBody(std::string_view end, Node* node) {
  const size_t begin = num_nodes();
  const int loops = std::exchange(loops_, 0);
  if (!Block(end, &node->body)) return false;
  loops_ = loops;
  node->takes_varargs = Reads(begin, "varargs");
  node->takes_kwargs = Reads(begin, "kwargs");
  return true;
}

const Node* Parser::Macro() {
  Node* node = New(NodeKind::kMacro, Now().at);
  Advance();
  if (!ExpectName(&node->name) || !Signature(&node->parameters)) return nullptr;
  return MacroBody("endmacro", node) ? node : nullptr;
}

const Node* Parser::CallBlock() {
  Node* node = New(NodeKind::kCallBlock, Now().at);
  Advance();
  node->name = "caller";
  if (IsOperator("(") && !Signature(&node->parameters)) return nullptr;
  node->kids = {Expression(true)};
  if (node->kids[0] == nullptr) return nullptr;
  if (node->kids[0]->kind != NodeKind::kCall) return Fail("a call block needs a call");
  return MacroBody("endcall", node) ? node : nullptr;
}

const Node* Parser::FilterBlock() {
  Node* node = New(NodeKind::kFilterBlock, Now().at);
  Advance();
  node->filter = FilterChain(nullptr, true);
  if (node->filter == nullptr) return nullptr;
  return Block("endfilter", &node->body) ? node : nullptr;
}

const Node* Parser::With() {
  Node* node = New(NodeKind::kWith, Now().at);
  Advance();
  while (Now().kind != TokenKind::kBlockEnd) {
    if (!node->kids.empty() && !ExpectOperator(",")) return nullptr;
    if (!OneTarget(&node->targets.emplace_back(), false) || !ExpectOperator("=")) return nullptr;
    node->kids.push_back(Expression(true));
    if (node->kids.back() == nullptr) return nullptr;
  }
  return Block("endwith", &node->body) ? node : nullptr;
}

// {% generation %} marks an assistant's text for training; rendering only prints its body.
const Node* Parser::Generation() {
  Node* node = New(NodeKind::kScope, Now().at);
  Advance();
  return Block("endgeneration", &node->body) ? node : nullptr;
}

}  // namespace kuiper::jinja
