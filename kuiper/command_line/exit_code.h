// The exit codes of the programs, part of their contract (docs/command_line.md), and the one place
// where the kinds of errors of the library are mapped to them.
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

// How the programs spell a parameter of the library: num_blocks is --num-blocks.
std::string FlagName(std::string_view parameter);

}  // namespace kuiper
