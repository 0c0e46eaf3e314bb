#include "kuiper/jinja/template.h"

#include <algorithm>

#include "kuiper/io/utf8.h"
#include "kuiper/jinja/evaluator.h"
#include "kuiper/jinja/lexer.h"
#include "kuiper/jinja/parser.h"

namespace kuiper::jinja {

StatusOr<Template> Template::Parse(std::string_view source) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  if (source.size() > kMaxBytes) {
    return Status(StatusCode::kModel, "the template is larger than 1 MB");
  }
  if (!IsValidUtf8(source)) return Status(StatusCode::kModel, "the template is not UTF-8");
  Template result;
  result.parts_ = std::make_unique<Parts>();
  Parts& parts = *result.parts_;
  parts.source = NormalizeSource(source);
  KU_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(parts.source));
  for (const Token& token : tokens) {
    if (token.kind == TokenKind::kData) parts.literals += std::string(token.text) + "\n";
    if (token.kind == TokenKind::kString) parts.literals += Unescape(token.text) + "\n";
  }
  Parser parser(parts.source, std::move(tokens), &parts.nodes, &parts.constants);
  KU_ASSIGN_OR_RETURN(parts.body, parser.Run());
  return result;
}

StatusOr<Rendered> Template::Render(const Variables& variables, const std::tm& now,
                                    const Limits& limits, Heap* heap, Refusal* refusal) const {
  Statements statements(parts_->source, now, limits, heap);
  if (statements.Run(parts_->body, variables)) return statements.Take();
  if (refusal != nullptr) *refusal = statements.refusal();
  return statements.status();
}

bool Template::Mentions(std::string_view name) const {
  return std::any_of(parts_->nodes.begin(), parts_->nodes.end(), [&](const Node& node) {
    const bool reads = node.kind == NodeKind::kName || node.kind == NodeKind::kAttribute;
    if (reads && node.name == name) return true;
    return node.kind == NodeKind::kConstant && node.value.Is(Kind::kString) &&
           node.value.bytes() == name;
  });
}

}  // namespace kuiper::jinja
