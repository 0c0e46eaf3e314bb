#include <algorithm>
#include <string>
#include <utility>

#include "kuiper/jinja/parser.h"

namespace kuiper::jinja {
namespace {

constexpr std::pair<std::string_view, Operator> kComparisons[] = {
    {"==", Operator::kEqual},  {"!=", Operator::kNotEqual},  {"<", Operator::kLess},
    {">", Operator::kGreater}, {"<=", Operator::kLessEqual}, {">=", Operator::kGreaterEqual}};

// Increments the nesting depth while this object exists.
class Nesting {
 public:
  explicit Nesting(int* depth) : depth_(depth) { ++*depth_; }
  ~Nesting() { --*depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int* depth_;
};

const Node* WithOperator(Operator op, Node* node) {
  if (node != nullptr) node->operators = {op};
  return node;
}

}  // namespace

const Node* ExpressionParser::Expression(bool with_condition) {
  const Nesting nesting(&depth_);
  if (depth_ > kMaxDepth) return Fail("expressions are nested too deep");
  const Node* value = Or();
  while (value != nullptr && with_condition && IsName("if")) {
    const Nesting condition(&conditions_);
    Node* node = New(NodeKind::kConditional, Now().at);
    Advance();
    const Node* test = Or();
    if (test == nullptr) return nullptr;
    node->kids = {test, value, nullptr};
    if (SkipName("else")) {
      node->kids[2] = Expression(true);
      if (node->kids[2] == nullptr) return nullptr;
    }
    value = node;
  }
  return value;
}

const Node* ExpressionParser::Or() {
  const Node* left = And();
  for (int terms = 0; left != nullptr && SkipName("or");) {
    if (++terms > kMaxDepth) return Fail("too many terms");
    left = NewBinary(NodeKind::kOr, left, And());
  }
  return left;
}

const Node* ExpressionParser::And() {
  const Node* left = Not();
  for (int terms = 0; left != nullptr && SkipName("and");) {
    if (++terms > kMaxDepth) return Fail("too many terms");
    left = NewBinary(NodeKind::kAnd, left, Not());
  }
  return left;
}

const Node* ExpressionParser::Not() {
  if (!IsName("not")) return Comparison();
  const Nesting nesting(&depth_);
  if (depth_ > kMaxDepth) return Fail("expressions are nested too deep");
  Node* node = New(NodeKind::kNot, Now().at);
  Advance();
  node->kids = {Not()};
  return node->kids[0] == nullptr ? nullptr : node;
}

const Node* ExpressionParser::Comparison() {
  const Node* first = Sum();
  Node* node = nullptr;
  while (first != nullptr) {
    const auto* const found = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                           [&](const auto& c) { return IsOperator(c.first); });
    Operator op;
    if (found != std::end(kComparisons)) {
      op = found->second;
    } else if (IsName("in")) {
      op = Operator::kIn;
    } else if (IsName("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
      op = Operator::kNotIn;
      Advance();
    } else {
      break;
    }
    if (node == nullptr) {
      node = New(NodeKind::kCompare, first->at);
      node->kids = {first};
    }
    Advance();
    node->operators.push_back(op);
    node->kids.push_back(Sum());
    if (node->kids.back() == nullptr) return nullptr;
  }
  return node != nullptr ? node : first;
}

const Node* ExpressionParser::Sum() {
  const Node* left = Concat();
  for (int terms = 0; left != nullptr && (IsOperator("+") || IsOperator("-"));) {
    if (++terms > kMaxDepth) return Fail("too many terms");
    const Operator op = IsOperator("+") ? Operator::kAdd : Operator::kSubtract;
    Advance();
    left = WithOperator(op, NewBinary(NodeKind::kArithmetic, left, Concat()));
  }
  return left;
}

const Node* ExpressionParser::Concat() {
  const Node* first = Product();
  if (first == nullptr || !IsOperator("~")) return first;
  Node* node = New(NodeKind::kConcat, first->at);
  node->kids = {first};
  while (SkipOperator("~")) {
    node->kids.push_back(Product());
    if (node->kids.back() == nullptr) return nullptr;
  }
  return node;
}

const Node* ExpressionParser::Product() {
  const Node* left = Power();
  for (int terms = 0; left != nullptr; ++terms) {
    Operator op;
    if (IsOperator("*")) {
      op = Operator::kMultiply;
    } else if (IsOperator("/")) {
      op = Operator::kDivide;
    } else if (IsOperator("//")) {
      op = Operator::kFloorDivide;
    } else if (IsOperator("%")) {
      op = Operator::kModulo;
    } else {
      break;
    }
    if (terms > kMaxDepth) return Fail("too many terms");
    Advance();
    left = WithOperator(op, NewBinary(NodeKind::kArithmetic, left, Power()));
  }
  return left;
}

const Node* ExpressionParser::Power() {
  const Node* left = Unary();
  for (int terms = 0; left != nullptr && SkipOperator("**");) {
    if (++terms > kMaxDepth) return Fail("too many terms");
    left = WithOperator(Operator::kPower, NewBinary(NodeKind::kArithmetic, left, Unary()));
  }
  return left;
}

const Node* ExpressionParser::Unary(bool with_filters) {
  const Nesting nesting(&depth_);
  if (depth_ > kMaxDepth) return Fail("expressions are nested too deep");
  const Node* node = nullptr;
  if (IsOperator("-") || IsOperator("+")) {
    Node* sign = New(IsOperator("-") ? NodeKind::kNegative : NodeKind::kPositive, Now().at);
    Advance();
    sign->kids = {Unary(false)};
    node = sign->kids[0] == nullptr ? nullptr : sign;
  } else {
    node = Primary();
  }
  if (node != nullptr) node = Postfix(node);
  if (node != nullptr && with_filters) node = FilterChain(node, false);
  return node;
}

}  // namespace kuiper::jinja
