// The exit codes of the programs, part of their contract (docs/command_line.md). The only place
// that maps the library's error kinds to them.
#pragma once

#include <string>
#include <string_view>

#include "kuiper/base/status.h"

namespace kuiper {

enum ExitCode : int {
  kExitOk = 0,
  kExitInternal = 1,
  kExitUsage = 2,
  kExitModel = 3,
  kExitTokenizer = 4,
  kExitInput = 5,
  kExitContext = 6,
  kExitMemory = 7,
  kExitDevice = 8,
  kExitVerify = 9,        // two runs that must be equal differ
  kExitLostFile = 10,     // a model file was truncated or overwritten while it was in use
  kExitInterrupted = 130  // what a shell reports for SIGINT; the process dies by the signal
};

int ExitCodeOf(StatusCode code);

// Spells a parameter of the library as the programs do: num_blocks is --num-blocks.
std::string FlagName(std::string_view parameter);

}  // namespace kuiper
