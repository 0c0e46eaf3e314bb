// The flags that only kuiper quantize has.
#pragma once

#include <vector>

#include "demo/options.h"
#include "kuiper/command_line/args.h"

namespace kuiper::demo {

// The values go to `q`, which must outlive the flags.
std::vector<Flag> FlagsOfQuantizing(QuantizeFlags& q);

}  // namespace kuiper::demo
