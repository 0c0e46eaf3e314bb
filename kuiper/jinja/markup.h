// Strings that hold HTML, as markupsafe.Markup: what joins them is escaped, and what is made of
// them is Markup again. Templates get them from the filters `safe` and `escape`; nothing else
// escapes.
#pragma once

#include <vector>

#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/text.h"
#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

// The text with & < > " ' as entities.
void AppendEscaped(const Text& text, TextBuilder* out);
// markupsafe.escape(value): Markup stays as it is.
Value Escaped(Heap& heap, const Value& value);
// Makes Markup of `value` if it is a string, and of the strings of a list or tuple.
void MarkAsMarkup(Value* value);

// Calls a method of `self`; those of Markup escape their arguments.
bool CallMethod(Runtime& run, const Builtin& method, const Node& node, const Value& self,
                std::vector<Value> args, Keywords keywords, Value* result);

}  // namespace kuiper::jinja
