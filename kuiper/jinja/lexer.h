// The text of a template -> tokens, with Jinja's rules for whitespace as transformers sets them:
// trim_blocks, lstrip_blocks, and one line break at the end of the file belongs to the file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper::jinja {

enum class TokenKind {
  kData,           // text between tags
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  size_t at = 0;               // byte of the source
  std::string_view text = {};  // as it stands in the source; of kData: what is left of it
};

// Line breaks become \n, one at the end goes away. Tokens refer to what this returns.
std::string NormalizeSource(std::string_view source);

// kModel, with line and column. The last token is kEnd.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// "line 3, column 14", both from 1; columns are characters.
std::string Place(std::string_view source, size_t at);

// The value of a string literal, quotes included in `literal`: Python's escapes.
std::string Unescape(std::string_view literal);

}  // namespace kuiper::jinja
