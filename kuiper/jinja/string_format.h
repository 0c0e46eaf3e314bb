// Python's "..." % values and "...".format(values).
#pragma once

#include "kuiper/jinja/builtin.h"

namespace kuiper::jinja {

// `values` is one value, a tuple of them, or a dict for %(name)s.
bool FormatPercent(Runtime& run, const Node& node, const Text& format, const Value& values,
                   const Text** result);
// {}, {0}, {name}, each with a format of strings and numbers behind a colon.
bool FormatBraces(Call& call, const Text& format, const Text** result);

}  // namespace kuiper::jinja
