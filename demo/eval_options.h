// What kuiper eval makes of its arguments: the texts of --against become configurations.
#pragma once

#include "demo/options.h"

namespace kuiper::demo {

// Checks the flags of kuiper eval and fills Options::others. kInvalidArgument.
Status FinishEval(Options* options);

}  // namespace kuiper::demo
