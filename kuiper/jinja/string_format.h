// Python's "..." % values and "...".format(values).
#pragma once

#include "kuiper/jinja/builtin.h"

namespace kuiper::jinja {

// `values` is one value, a tuple of values, or a dict for %(name)s. Markup escapes them.
bool FormatPercent(Runtime& run, const Node& node, const Value& format, const Value& values,
                   Value* result);
// Formats {}, {0} and {name}, optionally with a format for strings or numbers after a colon. A
// Markup format escapes the values.
bool FormatBraces(Call& call, const Value& format, const Text** result);

}  // namespace kuiper::jinja
