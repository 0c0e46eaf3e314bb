#include <algorithm>
#include <string>

#include "kuiper/base/text.h"
#include "kuiper/jinja/parser.h"

namespace kuiper::jinja {

std::nullptr_t TokenReader::FailAt(size_t at, const std::string& message) {
  if (status_.ok()) status_ = Status(StatusCode::kModel, Place(source_, at) + ": " + message);
  return nullptr;
}

std::nullptr_t TokenReader::Fail(const std::string& message) {
  return FailAt(Now().at, message);
}

std::nullptr_t TokenReader::Unexpected(const std::string& wanted) {
  const std::string found =
      Now().kind == TokenKind::kEnd ? "the end of the template" : Quoted(Now().text);
  return Fail("found " + found + " where " + wanted + " should be");
}

Node* TokenReader::New(NodeKind kind, size_t at) {
  return &nodes_->emplace_back(Node{.kind = kind, .at = at});
}

bool TokenReader::SkipOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Advance();
  return true;
}

bool TokenReader::SkipName(std::string_view text) {
  if (!IsName(text)) return false;
  Advance();
  return true;
}

bool TokenReader::ExpectOperator(std::string_view text) {
  if (SkipOperator(text)) return true;
  Unexpected(std::string("'").append(text).append("'"));
  return false;
}

bool TokenReader::ExpectName(std::string_view* name) {
  if (Now().kind != TokenKind::kName) {
    Unexpected("a name");
    return false;
  }
  *name = Now().text;
  Advance();
  return true;
}

bool TokenReader::Reads(size_t begin, std::string_view name) const {
  return std::any_of(
      nodes_->begin() + static_cast<std::ptrdiff_t>(begin), nodes_->end(),
      [&](const Node& node) { return node.kind == NodeKind::kName && node.name == name; });
}

Node* TokenReader::NewBinary(NodeKind kind, const Node* left, const Node* right) {
  if (right == nullptr) return nullptr;
  Node* node = New(kind, left->at);
  node->kids = {left, right};
  return node;
}

}  // namespace kuiper::jinja
