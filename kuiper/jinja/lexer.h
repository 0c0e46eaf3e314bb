// Splits the text of a template into tokens. White space follows Jinja's rules with the settings of
// transformers: trim_blocks, lstrip_blocks, and the line break at the end of the file is not text.
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
  std::string_view text = {};  // as in the source; kData: without stripped white space
};

// Converts line breaks to \n and removes one at the end. Tokens refer to the returned text.
std::string NormalizeSource(std::string_view source);

// Errors are kModel, with line and column. The last token is kEnd.
StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// "line 3, column 14", both from 1; columns are characters.
std::string Place(std::string_view source, size_t at);

// Returns the value of a string literal with Python's escapes; `literal` includes the quotes.
std::string Unescape(std::string_view literal);

}  // namespace kuiper::jinja
