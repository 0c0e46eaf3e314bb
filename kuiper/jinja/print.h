// Prints values as text: Python's str() and repr(), and json.dumps.
#pragma once

#include <optional>
#include <string>

#include "kuiper/jinja/text.h"
#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

// Appends str(value); an undefined value prints nothing.
void AppendStr(const Value& value, TextBuilder* out);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent = {};  // the text of one level; absent: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Returns an error message if Python's json.dumps would fail.
std::optional<std::string> AppendJson(const Value& value, const JsonStyle& style, TextBuilder* out);

}  // namespace kuiper::jinja
