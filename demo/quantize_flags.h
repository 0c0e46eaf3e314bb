// The flags that only kuiper quantize has.
#pragma once

#include <vector>

#include "demo/args.h"
#include "demo/options.h"

namespace kuiper::demo {

// Their values go to `q`, which must outlive the flags.
std::vector<Flag> FlagsOfQuantizing(QuantizeFlags& q);

}  // namespace kuiper::demo
