// Parses the tokens of a template into its tree. The grammar is that of jinja2 3.1 without the tags
// for several files (block, extends, include, import). Called by Template::Parse only.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/jinja/ast.h"
#include "kuiper/jinja/lexer.h"
#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

// Reads the tokens in order. A method that fails returns null (or false) after calling Fail.
class TokenReader {
 public:
  TokenReader(std::string_view source, std::vector<Token> tokens, std::deque<Node>* nodes)
      : source_(source), tokens_(std::move(tokens)), nodes_(nodes) {}

 protected:
  // Deeper trees are refused, because functions that walk the tree are recursive.
  static constexpr int kMaxDepth = 200;

  const Token& Now() const { return tokens_[next_]; }
  const Token& Ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  bool IsOperator(std::string_view text) const {
    return Now().kind == TokenKind::kOperator && Now().text == text;
  }
  bool IsName(std::string_view text) const {
    return Now().kind == TokenKind::kName && Now().text == text;
  }
  void Advance() {
    if (next_ + 1 < tokens_.size()) ++next_;
  }
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  bool ExpectOperator(std::string_view text);
  bool ExpectName(std::string_view* name);
  std::nullptr_t Fail(const std::string& message);
  std::nullptr_t FailAt(size_t at, const std::string& message);
  std::nullptr_t Unexpected(const std::string& wanted);
  Node* New(NodeKind kind, size_t at);
  size_t num_nodes() const { return nodes_->size(); }
  // True if the node number `begin`, or a later one, reads the name.
  bool Reads(size_t begin, std::string_view name) const;
  // Makes a node of two operands; returns null if `right` is null.
  Node* NewBinary(NodeKind kind, const Node* left, const Node* right);

  Status status_;
  int depth_ = 0;

 private:
  std::string_view source_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  std::deque<Node>* nodes_;
};

// Parses operands: literals, names, and the attributes, calls, filters and tests after them.
class OperandParser : public TokenReader {
 public:
  OperandParser(std::string_view source, std::vector<Token> tokens, std::deque<Node>* nodes,
                Heap* constants)
      : TokenReader(source, std::move(tokens), nodes), constants_(constants) {}

 protected:
  virtual const Node* Expression(bool with_condition) = 0;
  // Parses an expression, or a tuple if commas follow. `end_name`, like the end of the tag, ends
  // it.
  const Node* TupleOrExpression(bool with_condition = true, std::string_view end_name = "");
  const Node* Primary();
  const Node* Postfix(const Node* node);
  // A null `operand` means the filters of a block.
  const Node* FilterChain(const Node* operand, bool starts_inline);
  // Parses the call's parentheses and their content.
  bool CallArguments(Arguments* arguments);

  Heap* constants_;
  // Enclosing conditions; unknown filters inside them may be meant for other programs.
  int conditions_ = 0;

 private:
  const Node* Parenthesized();
  const Node* ListLiteral();
  const Node* DictLiteral();
  const Node* Number();
  const Node* StringLiteral();
  const Node* Subscript(const Node* node);
  const Node* SliceOrIndex();
  const Node* Call(const Node* node);
  const Node* Test(const Node* node);
  bool StartsArgument() const;
  bool EndsTuple(std::string_view end_name) const;
  const Node* Constant(size_t at, const Value& value);
};

// Parses operators, from the lowest precedence to the highest.
class ExpressionParser : public OperandParser {
 public:
  using OperandParser::OperandParser;

 protected:
  const Node* Expression(bool with_condition) override;

 private:
  // or, and; not; comparisons; + -; ~; * / // %; **
  const Node* Or();
  const Node* And();
  const Node* Not();
  const Node* Comparison();
  const Node* Sum();
  const Node* Concat();
  const Node* Product();
  const Node* Power();
  const Node* Unary(bool with_filters = true);
};

class Parser final : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;
  // Errors are kModel, with line and column.
  StatusOr<std::vector<const Node*>> Run();

 private:
  using Body = std::vector<const Node*>;

  // Parses up to one of `ends`: its tag has been opened, its name is the next token.
  bool Statements(std::initializer_list<std::string_view> ends, Body* body);
  // Parses up to `end` and reads its tag as well.
  bool Block(std::string_view end, Body* body);
  bool EndOfTag();
  const Node* Statement();
  const Node* For();
  const Node* If();
  const Node* Set();
  const Node* Macro();
  const Node* CallBlock();
  const Node* FilterBlock();
  const Node* With();
  const Node* Generation();
  bool MacroBody(std::string_view end, Node* node);
  bool Signature(std::vector<Parameter>* parameters);
  bool ParseTarget(Target* target, bool with_attribute);
  bool OneTarget(Target* target, bool with_attribute);

  int loops_ = 0;
};

}  // namespace kuiper::jinja
