// The flags that only kuiper_server has.
#pragma once

#include <vector>

#include "demo/options.h"
#include "kuiper/command_line/args.h"

namespace kuiper::demo {

// The values go to `s`, which must outlive the flags.
std::vector<Flag> FlagsOfServing(ServeFlags& s);

}  // namespace kuiper::demo
