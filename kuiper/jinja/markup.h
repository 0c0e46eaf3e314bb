// Strings that hold HTML, like markupsafe.Markup: strings joined with them are escaped, and results
// are Markup again. Templates get them from the filters `safe` and `escape`; nothing else escapes.
#pragma once

#include <vector>

#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/text.h"
#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

// Appends the text with & < > " ' as entities.
void AppendEscaped(const Text& text, TextBuilder* out);
// As markupsafe.escape(value): Markup stays as it is.
Value Escaped(Heap& heap, const Value& value);
// Turns `value` into Markup if it is a string, and also the strings of a list or tuple.
void MarkAsMarkup(Value* value);

// Calls a method of `self`; methods of Markup escape their arguments.
bool CallMethod(Runtime& run, const Builtin& method, const Node& node, const Value& self,
                std::vector<Value> args, Keywords keywords, Value* result);

}  // namespace kuiper::jinja
