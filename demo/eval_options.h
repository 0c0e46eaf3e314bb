// Processes the arguments of kuiper eval: turns the texts of --against into configurations.
#pragma once

#include "demo/options.h"

namespace kuiper::demo {

// Checks the flags of kuiper eval and fills Options::others. Errors: kInvalidArgument.
Status FinishEval(Options* options);

}  // namespace kuiper::demo
