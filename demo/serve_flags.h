// The flags that only kuiper_server has.
#pragma once

#include <vector>

#include "demo/args.h"
#include "demo/options.h"

namespace kuiper::demo {

// Their values go to `s`, which must outlive the flags.
std::vector<Flag> FlagsOfServing(ServeFlags& s);

}  // namespace kuiper::demo
